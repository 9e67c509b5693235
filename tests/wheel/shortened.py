"""How the tests run a command of the documentation: as it is written, wherever that is possible.

What plays or trains for long gets another option, which only makes it shorter. What needs an AWS
account, Docker, a cluster or root is looked through instead: the files, options and parameters that
it names are there. The page must say of such a command what it needs.
"""

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.deployment.templates import load
from tests.wheel.pages import ROOT


def as_written(command: str) -> str:
    return command


def also(options: str) -> Callable[[str], str]:
    """The command with more options behind it; the last of two wins."""
    return lambda command: f"{command.partition('  #')[0]} {options}"


def instead(command: str) -> Callable[[str], str]:
    """Another command in its place."""
    return lambda written: command


def looked_at(*pattern: str) -> Callable[[str], str]:
    """Nothing is run; the files that the patterns find in the command are in the project."""

    def look(command: str) -> str:
        for file in (name for one in pattern for name in re.findall(one, command)):
            assert (ROOT / file).exists(), f"{command}: there is no {file}"
        return ""

    return look


def extras_are_there(command: str) -> str:
    """A pip install: what it names can be installed, with extras that there are."""
    (extras,) = re.findall(r"""["']?\.\[(.*?)\]["']?""", command) or [""]
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(filter(None, extras.split(","))) <= set(known), command
    assert not re.search(r"battlesnake.gym(\[|$)", command), "nobody has it on PyPI"
    return looked_at(r"-c (\S+)")(command)


def stack_is_there(command: str) -> str:
    """An ``aws cloudformation deploy``: its template has the parameters that are given."""
    looked_at(r"--template-file (\S+)")(command)
    for file in re.findall(r"--template-file (\S+)", command):
        parameters = load(Path(file).stem)["Parameters"]
        given = command.partition("--parameter-overrides")[2].split()
        assert {one.partition("=")[0] for one in given} <= set(parameters), command
    return ""


def packages_are_known(command: str) -> str:
    """An apt-get: `make test` would install the same."""
    script = (ROOT / "tools" / "system_packages.sh").read_text()
    assert all(re.search(rf"\b{name}\b", script) for name in command.split()[2:]), command
    return ""


@dataclass(frozen=True)
class Rule:
    """What is done with the commands that begin like this."""

    pattern: str
    form: Callable[[str], str] = as_written
    says: str = ""
    """Words of the page about what the command needs."""
    slow: bool = False
    server: bool = False
    stable: bool = False
    """Whether the output is equal in every run, and as the page shows it."""


RULES = (
    Rule("(git clone|cd|fly launch|gcloud|hf) ", looked_at(r"(deployment/[\w./-]+)")),
    Rule("make ", lambda command: f"make -n {command.removeprefix('make ')}"),
    Rule(r"(sudo )?(\S+/)?pip install ", extras_are_there),
    Rule("apt-get install ", packages_are_known, "as root"),
    Rule("sudo cp ", looked_at(r"^sudo cp (\S+)"), "[Aa]s root"),
    Rule("(sudo|printf) ", looked_at(), "([Aa]s root|CloudShell)"),
    Rule(r"(python3\S* -m venv|source) ", looked_at(), "virtual environment|venv"),
    Rule("aws ", stack_is_there, "account"),
    Rule("docker build ", looked_at(r"-f (\S+)"), "(Docker|a terminal of the notebook)"),
    Rule("docker ", looked_at(), "(Docker|a terminal of the notebook)"),
    Rule(
        "ray start ",
        instead("python -m ray.scripts.scripts start --help"),
        "Ray cluster",
        slow=True,
    ),
    Rule("ray ", looked_at(r"(deployment/\S+yaml)"), "an AWS account"),
    Rule("kubectl apply ", looked_at(r"-f (\S+)"), "KubeRay"),
    Rule("kubectl ", looked_at(), "KubeRay"),
    Rule("curl ", looked_at(), "from a machine in the engine's region"),
    Rule("jupyter lab ", looked_at(r"lab (\S+)")),
    Rule(
        r"\.venv/bin/(pytest|python) ",
        looked_at(r"((?:tests|benchmarks|conformance|reference)/\S+\.py)"),
    ),
    # A run of one iteration has no Elo yet.
    Rule(
        "battlesnake-gym runs plot .*--columns elo ",
        also("--columns episode_reward_mean"),
        slow=True,
    ),
    Rule("battlesnake-gym runs (plot|export) ", slow=True),
    Rule("battlesnake-gym runs .*--web", also("--no-browser"), server=True),
    Rule("battlesnake-gym runs ", also("--help")),
    Rule("battlesnake-gym game coach --snake ", also("--help"), "arena.battlesnake.com"),
    Rule("battlesnake-gym aws (deploy|undeploy)\\b", also("--help"), "account"),
    Rule("battlesnake-gym aws experiment ", also("--help")),
    Rule("battlesnake-gym (arena|evaluate) foreign.onnx", also("--help"), "another trainer"),
    Rule("battlesnake-gym train .*--name first", also("--num-iters 1"), slow=True),
    Rule("battlesnake-gym (train|arena) .*--ray-address", also("--help"), "Ray cluster", slow=True),
    Rule("battlesnake-gym train .*policy:", also("--dry-run"), slow=True),
    Rule("battlesnake-gym (procgen )?train\\b.*--minutes 60", also("--dry-run"), "hour", slow=True),
    Rule("battlesnake-gym (procgen )?train\\b", also("--dry-run"), slow=True),
    Rule("battlesnake-gym game export game.jsonl ", instead("battlesnake-gym game export --help")),
    Rule("battlesnake-gym game export ", slow=True),
    Rule("battlesnake-gym evaluate ", also("--games 2"), slow=True),
    Rule("battlesnake-gym procgen rollout ", also("--episodes 1 --num-envs 1"), slow=True),
    Rule(
        "battlesnake-gym aws simulate ",
        lambda command: command.replace("minutes=1", "minutes=0.01"),
        slow=True,
    ),
    Rule("battlesnake-gym arena --web", server=True),
    Rule("battlesnake-gym arena .*--web", also("--games 1 --max-turns 5 --jobs 1"), server=True),
    Rule(
        "battlesnake-gym arena cautious hungry territory random ",
        also("--timeout 10000 --jobs 1"),
        stable=True,
    ),
    Rule("battlesnake-gym arena minimax@400 ", stable=True),
    Rule("battlesnake-gym arena ", also("--games 2 --max-turns 5 --jobs 1")),
    Rule("battlesnake-gym gauntlet ", lambda command: command.replace("--games 40", "--games 1")),
    Rule("battlesnake-gym league .*--host", server=True),
    Rule("battlesnake-gym league .*--games", also("--games 1 --jobs 1 --port 0")),
    Rule("battlesnake-gym league .*--check-health", stable=True),
    Rule("battlesnake-gym league "),
    Rule(r"battlesnake-gym ladder \S", also("--max-minutes 0.02"), slow=True),
    Rule(r"(\w+=\S+ )?battlesnake-gym (serve|game watch)\b", server=True),
    Rule("battlesnake-gym snakes mcp ", also("--help")),
    Rule("battlesnake-gym play ", lambda command: f"echo q | {command}"),
    Rule("battlesnake-gym (snakes|maps|doctor|game scenarios|ladder|pack)\\b"),
    Rule("export "),
)


def rule_of(command: str) -> Rule:
    """The first rule that the command begins like; every command has one."""
    for rule in RULES:
        if re.match(rule.pattern, command):
            return rule
    raise AssertionError(f"nothing is known of the command {command!r}")
