"""An extension that registers a map, an observation, a reward, a mask and a snake."""

import logging
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym import VectorBattlesnake, snakes
from battlesnake_gym.cli import main
from battlesnake_gym.common import extensions
from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.engine.python_engine import PythonGames
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.mdp import rewards as rewards_
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import MAPS, register_map
from tests.processes import COMMAND, run

FILE = """
import dataclasses
import numpy as np
from battlesnake_gym.mdp import masks, observations, rewards; from battlesnake_gym import snakes
from battlesnake_gym.rules import MAPS, MOVES, OFFSETS, register_map
from battlesnake_heuristics import SAFE, Pipeline

def corners(game, state):
    MAPS["standard"].setup(game, state)
    found = [(0, 0), (state.width - 1, state.height - 1)]
    state.food += [cell for cell in found if cell not in state.food]

register_map(dataclasses.replace(MAPS["standard"], id="corners", description="", setup=corners))

def encode(state, snake_id):
    planes = np.zeros((2, state.height, state.width), np.uint8)
    for x, y in state.food:
        planes[0, y, x] = 200
    for snake in state.snakes:
        if snake.alive:
            x, y = snake.head
            planes[1, y, x] = 255 if snake.id == snake_id else 99
    return planes

observations.register("heads-and-food", ["food", "heads"], encode, version=3)

def climbed(turn):
    return (turn.heads[..., 1] - turn.heads_before[..., 1]).clip(0, 1)

rewards.register("climbed", climbed)

def low(game, state, snake_id):
    snake = next(snake for snake in state.snakes if snake.id == snake_id)
    return [snake.head[1] + OFFSETS[move][1] < state.height - 2 for move in MOVES]

masks.register("low", low)
snakes.register("mine", lambda seed: Pipeline(*SAFE, seed=seed))
"""


def test_file_with_one_snake_is_a_strategy(tmp_path: Path) -> None:
    """Its snake can have the name of a built-in snake, which stays unchanged."""
    one = 'from battlesnake_gym import snakes\nsnakes.register("hungry", lambda seed: str)\n'
    built_in = snakes.factory("hungry")
    for name, text in (("one", one), ("two", one + one.replace("hungry", "me")), ("none", "")):
        (tmp_path / f"{name}.py").write_text(text)
    assert repr(snakes.make(str(tmp_path / "one.py"))) == repr(str)
    assert snakes.factory("hungry") is built_in
    for name, message in (
        ("two", "hungry.* me"),
        ("none", "no snake"),
        ("lost", r"lost\.py"),
    ):
        with pytest.raises(ValueError, match=message):
            snakes.make(str(tmp_path / f"{name}.py"))


def test_file_in_the_environment_variable_is_a_strategy_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snakes, "_factories", dict(snakes._factories))
    path = tmp_path / "listed.py"
    path.write_text(
        'from battlesnake_gym import snakes\nsnakes.register("listed", lambda seed: str)\n'
    )
    monkeypatch.setenv(extensions.EXTENSIONS_VARIABLE, str(path))
    assert "listed" in snakes.names()
    assert snakes.factory(str(path)) is snakes.factory("listed")


def test_threads_load_files_in_turn(tmp_path: Path) -> None:
    listen, path = socket.socket.listen, tmp_path / "slow.py"
    path.write_text("import time\ntime.sleep(0.2)\nX = 1\n")
    (tmp_path / "other.py").write_text("import time\ntime.sleep(0.3)\n")
    with ThreadPoolExecutor() as pool:
        files = [path, tmp_path / "other.py", path]
        loaded = list(pool.map(lambda file: vars(extensions.load_file(file, "file")), files))
    assert socket.socket.listen is listen
    assert loaded[0] is loaded[2]
    assert loaded[2]["X"] == 1


def test_a_file_that_catches_the_rejection_of_its_server_leaves_logging_enabled(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import socket\ntry:\n    socket.create_server(('', 0))\nexcept RuntimeError:\n    pass\n"
    )
    extensions.load_file(path, "file")
    assert logging.root.manager.disable == logging.NOTSET


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import json\n\ndef f(:\n", "line 3: SyntaxError: invalid syntax"),
        ("\0", "SyntaxError: source code"),
        ("\nimport nosuchmodule\n", "line 2: ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("def f():\n    raise KeyError('a')\nf()\n", "line 2: KeyError: 'a'"),
        ("import json\njson.loads('{')\n", "line 2: JSONDecodeError: Expecting property"),
        ("raise SystemExit(0)\n", "line 1: SystemExit: 0"),
    ],
)
def test_failing_file_is_reported_with_line_and_cause(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    for reference in (snakes.make, lambda name: extensions.load_object(f"{name}:Net", "network")):
        with pytest.raises(extensions.ExtensionError) as caught:
            reference(str(path))
        assert str(caught.value).startswith((f"{path}, {message}", f"{path}: {message}"))


def test_an_exception_is_described_after_the_working_directory_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert describe_exception(ValueError("no food")) == "ValueError: no food"


@pytest.mark.parametrize("command", ["play {}", "snakes {}", "serve --policy-rules {}", "arena {}"])
def test_command_reports_failing_file_in_one_line(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import nosuchmodule\n")
    name, *words = command.format(path).split()
    more = ["--policy", "shipped"] if name == "serve" else []
    assert main.main([name, *words, *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"battlesnake-gym {name}: {path}, line 1: ModuleNotFoundError")


@pytest.fixture
def extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An extension file in the environment variable; its registrations are removed afterwards."""
    for registry in (
        MAPS,
        observations._custom_encoders,
        masks._custom_masks,
        rewards_.EVENTS,
        snakes._factories,
    ):
        for name in ("corners", "heads-and-food", "climbed", "low", "mine"):
            monkeypatch.setitem(registry, name, None)
            monkeypatch.delitem(registry, name)
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    monkeypatch.setenv(extensions.EXTENSIONS_VARIABLE, str(path))
    return path


def test_commands_load_the_extension(extension: Path) -> None:
    """Run commands in new processes, which have not run the file yet."""
    for command in ("maps corners --json", "play mine --map corners --board-size 7", "snakes"):
        done = run(*COMMAND, *command.split(), input="q\n", check=True)
        assert ("corners" if "maps" in command else "mine") in done.stdout, command


@pytest.mark.parametrize("frame_stack", [1, 2])
def test_vector_env_uses_registered_parts(extension: Path, frame_stack: int) -> None:
    observation = {"name": "heads-and-food", "frame_stack": frame_stack}
    env = VectorBattlesnake(
        6,
        [2, 2, 2, 3, 3, 3],
        [5, 5, 7, 7, 7, 7],
        7,
        observation=observation,
        rewards={"climbed": 2.0, "died": -1},
        action_mask="fatal+low",
    )
    encoder = env.observation
    seen, infos = env.reset(seed=2)
    memory = seen.copy()
    died = climbed = low = 0
    for _ in range(60):
        before = env.games.heads.copy()
        seen, rewards, *_, infos = env.step(infos["action_mask"].argmax(axis=2))
        for i in range(6):
            state = env.games.state(i)
            if infos["reset"][i]:
                memory[i] = 0
            for seat, snake in enumerate(state.snakes):
                encoder.encode(state, snake.id, memory[i, seat])
                np.testing.assert_array_equal(seen[i, seat], memory[i, seat])
                if not infos["acted"][i, seat]:
                    assert rewards[i, seat] == 0
                    continue
                up = snake.head[1] > before[i, seat, 1]
                assert rewards[i, seat] == 2.0 * up - (not snake.alive)
                climbed += up
                died += not snake.alive
                mask = masks.action_mask(env.game, state, snake.id, "fatal+low")
                if snake.alive:
                    np.testing.assert_array_equal(infos["action_mask"][i, seat], mask)
                    low += not mask[0] and masks.action_mask(env.game, state, snake.id, "wall")[0]
    assert min(died, climbed, low) > 10


def test_custom_map_falls_back_to_python_engine_with_warning(extension: Path) -> None:
    with pytest.warns(RuntimeWarning, match="'corners'"):
        env = VectorBattlesnake(2, 2, 7, 7, map="corners")
    assert isinstance(env.games, PythonGames)
    env.reset(seed=1)
    for i in range(2):
        assert {(0, 0), (6, 6)} <= set(env.games.state(i).food)


def test_custom_observation_stores_its_version(extension: Path) -> None:
    stored = observations.get("heads-and-food").to_dict()
    assert stored["version"] == 3
    assert observations.get(stored) == Observation("heads-and-food")
    with pytest.raises(ValueError, match=r"version 3.* 2"):
        observations.get(stored | {"version": 2})


def test_built_in_names_cannot_be_replaced() -> None:
    with pytest.raises(ValueError, match="'standard'"):
        register_map(MAPS["standard"])
    with pytest.raises(ValueError, match="'planes'"):
        observations.register("planes", [], lambda state, snake: np.zeros(0, np.uint8))
    with pytest.raises(ValueError, match="'won'"):
        rewards_.register("won", lambda turn: turn.acted)
    with pytest.raises(ValueError, match="'wall'"):
        masks.register("wall", lambda game, state, snake: [True] * 4)


def test_observation_cannot_be_subclassed() -> None:
    @dataclass(frozen=True)
    class Mine(Observation):
        pass

    with pytest.raises(ValueError, match=r"Mine.* Observation.*register"):
        Mine()


def test_observation_with_wrong_shape_is_rejected(extension: Path) -> None:
    observations.register("odd", ["one"], lambda state, snake: np.zeros((2, 3, 3), np.uint8))
    try:
        with pytest.raises(ValueError, match=r"'odd'.* uint8.* \(1, 7, 7\)"):
            VectorBattlesnake(1, 2, 7, 7, observation="odd").reset(seed=1)
    finally:
        del observations._custom_encoders["odd"]


@pytest.mark.parametrize("allowed", [["up"], ["up", "down", "left", "right"], True, [True] * 3])
def test_mask_that_is_not_four_booleans_is_rejected(
    monkeypatch: pytest.MonkeyPatch, allowed: Any
) -> None:
    monkeypatch.setitem(masks._custom_masks, "odd", lambda game, state, snake: allowed)
    with pytest.raises(ValueError, match=r"'odd'.* four booleans"):
        VectorBattlesnake(1, 2, 7, 7, action_mask="odd").reset(seed=1)


def test_event_with_wrong_shape_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rewards_.EVENTS, "odd", lambda turn: turn.over)
    env = VectorBattlesnake(2, 2, 7, 7, rewards={"odd": 1})
    env.reset(seed=1)
    with pytest.raises(ValueError, match=r"'odd'.* \(2, 2\) .*got \(2,\)"):
        env.step(np.zeros((2, 2), np.uint8))


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_event_of_a_seat_that_did_not_act_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rewards_.EVENTS, "inverse", lambda turn: 1 / turn.length)
    env = VectorBattlesnake(2, 2, 7, 7, rewards={"inverse": 1}, action_mask="none")
    env.reset(seed=1)
    for _ in range(10):
        _, rewards, _, _, infos = env.step(np.zeros((2, 2), np.uint8))
        assert not rewards[~infos["acted"]].any()


def test_unknown_name_suggests_registered_names(extension: Path) -> None:
    with pytest.raises(ValueError, match=r"'heads-food'.*heads-and-food"):
        observations.get("heads-food")
    with pytest.raises(ValueError, match=r"'lowe'.*low"):
        masks.check_kind("lowe")
    with pytest.raises(ValueError, match=r"'corner'.* corners"):
        VectorBattlesnake(1, map="corner")


def test_entry_point_registers_parts(tmp_path: Path) -> None:
    (tmp_path / "mine_games.py").write_text(FILE)
    facts = tmp_path / "mine_games-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: mine_games\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("[battlesnake_gym]\nmine = mine_games\n")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n" + (
        "from battlesnake_gym.mdp import masks, observations\n"
        "print(observations.get('heads-and-food').planes, masks.check_kind('low'))"
    )
    ran = run(sys.executable, "-c", code)
    assert ran.stdout == "('food', 'heads') low\n", ran.stderr


def test_a_file_with_the_name_of_a_package_is_named(tmp_path: Path) -> None:
    """The heuristics file of the starter pack has such a name."""
    (tmp_path / "battlesnake_heuristics.py").write_text("")
    code = "from battlesnake_gym import snakes\nsnakes.names()"
    ran = run(sys.executable, "-c", code, cwd=tmp_path)
    assert f"rename {tmp_path / 'battlesnake_heuristics.py'}, which hides" in ran.stderr
