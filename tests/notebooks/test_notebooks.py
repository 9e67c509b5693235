"""Run the notebooks from top to bottom, and check that their outputs are current."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from battlesnake_heuristics.search.evaluation import BUILTIN_PATH

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
Test = Callable[[Path], None]

pytestmark = pytest.mark.filterwarnings("ignore")

FILES = sorted(NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(scope="module", autouse=True)
def tools() -> Iterator[None]:
    """What runs the notebooks is in no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(NOTEBOOKS.parent / "tools")
        yield


@pytest.fixture(scope="module")
def workplace(tools: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the notebooks; later notebooks use results of earlier ones."""
    from run_notebooks import prepare_folder

    return prepare_folder(tmp_path_factory.mktemp("repository"))


def execute(workplace: Path, name: str, *replacements: tuple[str, str]) -> str:
    """Run a notebook; returns what its cells printed and returned, as text.

    Each replacement makes it smaller: what stands there once, and what shall.
    """
    from run_notebooks import run_notebook

    text = (NOTEBOOKS / f"{name}.ipynb").read_text()
    for old, new in replacements:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        text = text.replace(old, new)
    cells = run_notebook(json.loads(text), workplace)["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    texts = [output.get("text", output.get("data", {}).get("text/plain", "")) for output in outputs]
    return "\n".join("".join(text) for text in texts)


def shows(said: str, *patterns: str) -> None:
    for pattern in patterns:
        assert re.search(pattern, said, re.MULTILINE), said


def leaves(workplace: Path, *files: str) -> None:
    for file in files:
        assert (workplace / file).stat().st_size > 0


def test_introduction(workplace: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra rllib")
    said = execute(workplace, "1_introduction", ("minutes 0.5", "minutes 0.02"))
    leaves(workplace, "runs/first/curve.png", "runs/first/model/policy.json", "replays/first.gif")
    shows(said, r"^first +\d+\.\d ± ", r"^ *search .* depth 6, ")


@pytest.fixture
def jobs() -> None:
    """What simulated training jobs need; the SDK itself is slow to import."""
    for package in ("ray", "sagemaker", "sagemaker_training"):
        if find_spec(package) is None:
            pytest.skip(f"no {package}: needs the extras rllib, sagemaker and sagemaker-simulator")


def runs_jobs(test: Test, seconds: float | None = 1800) -> Test:
    """Mark the test of a notebook that starts training jobs."""
    marked: Test = pytest.mark.usefixtures("jobs")(pytest.mark.timeout(seconds)(test))
    return pytest.mark.slow(marked)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_blackout(workplace: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra rllib")
    few = (
        ("minutes = 5", "minutes = 0.2"),
        ("--games 100", "--games 4"),
        ("--games 4 ", "--games 1 "),
    )
    said = execute(workplace, "10_blackout", *few)
    assert "None" in said, "no segment is hidden"
    shows(said, r"^remembered food: \{\(", r"^trained +\d")
    leaves(workplace, "replays/blackout.gif")


@runs_jobs
def test_tuning(workplace: Path) -> None:
    said = execute(workplace, "8_tuning", ("minutes = 0.5", "minutes = 0.05"))
    assert said.count(": Completed, episode_reward_mean ") == 3
    shows(said, r"^going-on ", r"^best ")


@partial(runs_jobs, seconds=900)
def test_policy_training(workplace: Path) -> None:
    few = r": 0.02, \"rl.training.config.moves_per_iteration\": 500"
    quick = "--games 20 --move-time 25", "--games 2 --move-time 5"
    # So short a search leaves no champion of its own: the package's is packed.
    champion = "{found}/model/champion.evaluation", str(BUILTIN_PATH)
    changes = ("minutes = 3", "minutes = 0.05"), (": search_minutes", few), quick, champion
    said = execute(workplace, "2_policy_training", *changes)
    assert said.count("algo-1 | training_iteration=1 ") == 2
    assert re.search(r"episode_reward_mean +-?\d", said), said  # CloudWatch's
    shows(said, r"^trained +\d+\.\d ± ", r"^searcher +\d+\.\d ± ")
    leaves(workplace, "runs/sagemaker/curve.png", "replays/sagemaker.gif")
    check_published(said)


@runs_jobs
def test_homogeneous(workplace: Path) -> None:
    said = execute(workplace, "3_homogeneous", ("minutes = 3", "minutes = 0.1"))
    shows(said, r"2.* num_env_runners.* 0")
    taken, again, goes_on = said.partition("the job resumes on new instances")
    assert "algo-1 | training_iteration=1 " in taken
    assert again
    assert "algo-2 | algo-2 ends" in goes_on
    assert "algo-1 | training_iteration=1 " not in goes_on
    leaves(workplace, "runs/homogeneous/curve.png")


@runs_jobs
def test_heterogeneous(workplace: Path) -> None:
    said = execute(workplace, "4_heterogeneous", ("minutes = 3", "minutes = 0.1"))
    assert "algo-1 | training_iteration=1 " in said
    shows(said, r"secondary/algo-1.* primary/algo-1", r"^trained +\d+\.\d ± ")
    leaves(workplace, "replays/heterogeneous.gif")


@partial(runs_jobs, seconds=3600)
def test_published_experiment(workplace: Path) -> None:
    small = ("minutes = 20", "minutes = 0.02")
    said = execute(workplace, "9_published_experiment", small)
    for title in ("DQN, 1 core", "DQN, 4 cores", "APEX, 12 cores", "APEX, GPU and 12 cores"):
        assert re.search(rf"^{title}.* 0\.\d +-?\d", said, re.MULTILINE), said
    assert (workplace / "published-experiment" / "graphs.png").stat().st_size > 5_000


@runs_jobs
def test_hill_training(workplace: Path) -> None:
    said = execute(workplace, "6_hill_training", ("minutes = 0.5", "minutes = 0.05"))
    shows(said, r"^fatal +- +allowed +- +- *$")
    for label in ("vanilla", "mask", "fine-walls", "pay-kills"):
        assert re.search(rf"^{label} +\d+\.\d ± ", said, re.MULTILINE), said
    # The table is too wide, and shown in two parts: the first has the deaths at walls.
    (masked, *_), (vanilla, *_) = (
        map(float, re.findall(rf"^{label} +[\d.]+ +([\d.]+) ", said, re.MULTILINE))
        for label in ("mask", "vanilla")
    )
    assert masked < vanilla, said
    leaves(workplace, "runs/hill/curves.png", "replays/hill.gif")


@runs_jobs
def test_procgen_train(workplace: Path) -> None:
    pytest.importorskip("envpool", reason="needs the extra procgen")
    said = execute(workplace, "procgen_1_train", ("minutes = 1 ", "minutes = 0.05 "))
    assert "algo-1 | training_iteration=1 " in said
    shows(said, r"coinrun .*reward .*score")
    for made in ("curve.png", "videos/coinrun-000.gif"):
        assert (workplace / "runs/procgen" / made).stat().st_size > 0, said


@runs_jobs
def test_procgen_distributed(workplace: Path) -> None:
    pytest.importorskip("envpool", reason="needs the extra procgen")
    said = execute(workplace, "procgen_2_distributed", ("minutes = 0.5", "minutes = 0.05"))
    assert "algo-2 | algo-2 ends" in said
    assert said.count("algo-1 | training_iteration=1 ") == 2
    leaves(workplace, "runs/procgen-distributed.png")


@pytest.mark.slow
def test_heuristics_developer(workplace: Path) -> None:
    said = execute(workplace, "5_heuristics_developer")
    assert "hungry: FAILED" in said
    assert "mine: passed" in said
    assert "2 of 2" in said
    assert not re.search(r"^FAIL ", said, re.MULTILINE), said
    shows(said, r"^mine +\d+\.\d ± ")
    check_published(said)


def check_published(said: str) -> None:
    """The snake on AWS has one colour, and after it was published anew the other."""
    colours = re.findall(r"'apiversion': '1', 'author': '', 'color': '(\S+)'", said)
    assert colours[-2:] == ["#3366cc", "#e0a100"], said
    assert len(re.findall(r"^\{'move': '", said, re.MULTILINE)) >= 2, said


def test_deploy_and_compete(workplace: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra rllib")
    said = execute(workplace, "7_deploy_and_compete")
    for label in ("learned", "hunter", "unguarded"):
        assert re.search(rf"^{label} +\d+\.\d ± ", said, re.MULTILINE), said
    assert "'apiversion': '1'" in said
    assert "move {'move': " in said
    assert "'error'" not in said
    moves = re.search(r'moves_total\{chosen_by="strategy"\} (\S+)', said)
    assert moves, said
    assert float(moves[1]) > 1
    check_published(said)
    leaves(workplace, "replays/online.gif")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_outputs_are_of_the_code_that_stands_there(path: Path) -> None:
    """As `make notebooks` leaves them: small, and without what only one machine knows."""
    from run_notebooks import MAX_NOTEBOOK_BYTES, is_current

    written = path.read_text()
    notebook = json.loads(written)
    assert is_current(notebook), "run `make notebooks`"
    assert len(written.encode()) <= MAX_NOTEBOOK_BYTES
    assert "widgets" not in notebook["metadata"]  # their state needs a kernel
    assert not re.search(r"/(tmp|root|home|work)/|widget-view|\\r", written)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in code:
        assert "execution" not in cell["metadata"]
        assert cell["execution_count"] is None
        assert all(output["output_type"] != "error" for output in cell["outputs"])


@pytest.mark.parametrize(
    ("name", "ends", "begins"),
    [
        ("1_introduction", "first", "hungry"),
        ("2_policy_training", "trained", "tree"),
        ("2_policy_training", "searcher", "territory"),
        ("3_homogeneous", "trained", "random"),
        ("4_heterogeneous", "trained", "random"),
        ("5_heuristics_developer", "mine", "hungry"),
        ("6_hill_training", "mask", "vanilla"),
        ("7_deploy_and_compete", "learned", "hunter"),
        ("8_tuning", "going-on", "best"),
    ],
)
def test_the_snake_that_a_notebook_ends_with_beat_the_one_before(
    name: str, ends: str, begins: str
) -> None:
    shown = (NOTEBOOKS / f"{name}.ipynb").read_text()
    ending, beginning = (
        float(re.findall(rf'"{snake} +([0-9.]+) ± ', shown)[-1]) for snake in (ends, begins)
    )
    assert ending > beginning


def test_a_command_that_fails_fails_its_notebook(workplace: Path) -> None:
    from nbclient.exceptions import CellExecutionError
    from run_notebooks import run_notebook

    cell = {"cell_type": "code", "source": "!exit 3", "metadata": {}, "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    with pytest.raises(CellExecutionError, match="returned non-zero exit status 3"):
        run_notebook(notebook, workplace)


def test_code_that_was_changed_is_found() -> None:
    from run_notebooks import is_current

    notebook = json.loads(FILES[0].read_text())
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell["source"] = [*cell["source"], "# changed"]
    assert not is_current(notebook)
