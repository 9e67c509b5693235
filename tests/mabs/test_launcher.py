"""The whole command: train, stop by a signal, resume, refuse, export, evaluate, plot."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.core.rl_module.rl_module import RLModule
from torch.testing import assert_close

from battlesnake_gym.policy_file import PolicyError
from battlesnake_gym.replays.replay import Replay
from battlesnake_rl.commands import evaluate_command, runs_export_command, runs_plot_command
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs import checkpoint_export
from battlesnake_rl.mabs.policy import policy_loader
from battlesnake_rl.onnx_export import write_onnx
from battlesnake_server.commands import arena_command
from battlesnake_server.runs.run_view import RunView
from battlesnake_server.strategy_loader import DEFAULT_POLICY_PATH
from sagemaker_rl.runs import checkpoints, training_run
from tests import run_summary
from tests.processes import COMMAND, run
from tests.progress_csv import rows
from tests.sagemaker_rl import tensorboard_cards
from tests.sagemaker_rl.malicious_checkpoints import doctor, mark_whole

pytestmark = pytest.mark.filterwarnings("default")

SMALL = shlex.split("""
    --num-snakes 2 --board-size 5 --seed 3 --num-env-runners 0 --algorithm DQN
    --rl.training.config.num_envs_per_env_runner 4 --rl.training.config.rollout_fragment_length 8
    --rl.training.config.train_batch_size_per_learner 32
    --rl.training.config.num_steps_sampled_before_learning_starts 64
    --rl.training.config.min_sample_timesteps_per_iteration 128
    --hyperparameter rl.training.config.replay_buffer_config.capacity=2000
    --hyperparameter rl.training.config.model_config.channels=[8]
    --hyperparameter rl.training.config.model_config.strides=[2]
""")


def train(runs: Path, *arguments: str) -> int:
    return main([*SMALL, "--runs-dir", str(runs), *arguments])


@pytest.fixture(scope="module")
def trained(ray_with_games: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of four iterations, made in two parts."""
    runs = tmp_path_factory.mktemp("runs") / "of mine"
    assert train(runs, "--num-iters", "2") == 0
    assert train(runs, "--num-iters", "4") == 0
    return runs / "DQN-5x5-2"


def test_a_run_leaves_curves_checkpoints_and_a_policy(trained: Path) -> None:
    table = rows(trained)
    assert [row["training_iteration"] for row in table] == ["1", "2", "3", "4"]
    for name in ("env_steps", "time_total_s"):
        values = [float(row[name]) for row in table]
        assert values == sorted(values)
        assert values[0] > 0
    assert all(float(row["episode_len_mean"]) > 0 for row in table)
    assert "Snake_was_eaten" in table[0]
    curves = tensorboard_cards.check(trained / "tensorboard")
    assert {"reward", "length", "longest_snake", "deaths_wall_collision", "q_loss"} <= set(curves)
    checkpoints = sorted(path.name for path in (trained / "checkpoints").iterdir())
    assert checkpoints == ["checkpoint_000002", "checkpoint_000004"]
    assert (trained / "model" / "policy.onnx").is_file()


def test_a_finished_run_is_not_trained_again_and_ends_with_five_lines(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows(trained)
    assert train(trained.parent, "--num-iters", "4", "--ruleset", "wrapped") == 0
    assert rows(trained) == before
    out = capsys.readouterr().out
    assert "ruleset is wrapped but was the default" in out
    assert "DQN-5x5-2 has met its stop condition and does not train" in out
    assert RunView(trained).settings["ruleset"] == "standard"
    told = run_summary.told(out, trained)
    assert told["result"].startswith("done: DQN-5x5-2, 4 iterations")
    assert told["strength"].startswith("not measured")
    assert told["model"] == f"{trained}/model/policy.onnx"
    assert told["next"] == f"battlesnake-gym serve --policy '{trained}/model/policy.onnx'"


def test_a_run_leaves_what_it_was_its_games_and_a_report(trained: Path) -> None:
    run = RunView(trained)
    assert run.state == "done"
    assert run.progress_fraction == 1
    assert run.settings["board_size"] == "5"
    assert run.settings["observation"] == "planes"
    assert run.settings["rollout_fragment_length"] == "8"
    assert run.identity["algorithm"] == "DQN"
    first, second = run.games()[::-1]
    assert (first.iteration, second.iteration) == (2, 4)
    assert second.kept
    assert second.path is not None
    replay = Replay.load(second.path)
    assert len(replay.first.snakes) == 2
    assert replay.last.width == 5
    assert replay.turns
    text = (trained / "report.html").read_text()
    assert '<span class="facts">done, ' in text
    assert "iteration 4" in text


def test_without_an_algorithm_the_command_names_the_experiment_that_it_trains(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--dry-run", "--num-iters", "5"]) == 0
    assert "duel-distil" in capsys.readouterr().out


def test_policy_equals_the_network(trained: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra server")
    onnx = trained / "model" / "policy.onnx"
    metadata = json.loads(onnx.with_suffix(".json").read_text())
    assert metadata["format"] == 2
    assert metadata["board_sizes"] == [[5, 5]]
    assert metadata["actions"] == ["up", "down", "left", "right"]
    assert metadata["observation"]["name"] == "planes"
    assert metadata["training"]["algorithm"] == "DQN"
    assert metadata["training"]["training_iteration"] == 4
    assert metadata["sha256"] == hashlib.sha256(onnx.read_bytes()).hexdigest()

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(onnx), options, providers=["CPUExecutionProvider"])
    checkpoint = trained / "checkpoints" / "checkpoint_000004"
    network = policy_loader.PolicyCheckpoint(checkpoint).load_network()
    (folder,) = checkpoint.glob("learner_group/learner/rl_module/default_policy")
    module = RLModule.from_checkpoint(str(folder.absolute()))
    weights = network.get_parameter("value.weight")
    assert_close(weights, module.mean.module.value.weight)
    assert not torch.equal(weights, module.network.value.weight)
    random = np.random.default_rng(0)
    for count in (1, 2, 33):
        boards = random.integers(0, 256, size=(count, 10, 5, 5), dtype=np.uint8)
        with torch.no_grad():
            expected = network(torch.from_numpy(boards)).numpy()
        (answer,) = session.run(["q_values"], {"observations": boards})
        assert answer.dtype == np.float32
        np.testing.assert_allclose(answer, expected, atol=1e-5, rtol=0)
    assert np.ptp(expected, axis=0).min() > 1e-4


def test_an_export_that_differs_from_the_checkpoint_is_not_kept(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_another(network: torch.nn.Module, *arguments: Any) -> None:
        bias = network.get_parameter("advantage.bias")
        with torch.no_grad():
            bias[0] += 1.0
        write_onnx(network, *arguments)
        with torch.no_grad():
            bias[0] -= 1.0

    monkeypatch.setattr(checkpoint_export, "write_onnx", write_another)
    checkpoint = trained / "checkpoints" / "checkpoint_000004"
    with pytest.raises(PolicyError, match="differs by"):
        checkpoint_export.export_checkpoint(checkpoint, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_doctored_checkpoint_runs_nothing(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its constructors are not read, and weights that are more than weights are refused."""
    copy, ran = tmp_path / trained.name, tmp_path / "ran"
    shutil.copytree(trained, copy)
    checkpoint = copy / "checkpoints" / "checkpoint_000004"
    for path in checkpoint.rglob("class_and_ctor_args.pkl"):
        doctor(path, ran)
    mark_whole(checkpoint)
    onnx = tmp_path / "policy.onnx"
    assert runs_export_command.main([str(checkpoint), "-o", str(onnx)]) == 0
    assert onnx.read_bytes() == (trained / "model" / "policy.onnx").read_bytes()
    assert train(tmp_path, "--num-iters", "5") == 0
    doctor(next(checkpoint.rglob("default_policy/module_state.pkl")), ran)
    mark_whole(checkpoint)
    with pytest.raises(SystemExit, match="2"):
        runs_export_command.main([str(checkpoint), "-o", str(onnx)])
    assert "posix.system" in capsys.readouterr().err
    assert not ran.exists()


def test_a_resumed_checkpoint_that_holds_a_program_is_refused_unless_trusted(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, ran = tmp_path / trained.name, tmp_path / "ran"
    shutil.copytree(trained, copy)
    doctor(copy / "checkpoints" / "checkpoint_000004" / "algorithm_state.pkl", ran)
    mark_whole(copy / "checkpoints" / "checkpoint_000004")
    assert train(tmp_path, "--num-iters", "5") == 1
    assert "--trust-checkpoint" in capsys.readouterr().err
    assert not ran.exists()
    with pytest.raises(Exception):  # noqa: B017, PT011  (what comes of it is no state)
        train(tmp_path, "--num-iters", "5", "--trust-checkpoint")
    assert ran.exists()


@pytest.mark.parametrize(
    ("code", "status", "more"),
    [
        ("lambda seed: {}[0]", 2, []),
        ("lambda seed: lambda *board: {}[0]", 1, []),
        ("lambda seed: lambda *board: {}[0]", 1, ["--num-env-runners=1"]),
        ("lambda seed: lambda *board: {}[0]", 1, ["--num-env-runners=1", "--algorithm=APEX"]),
    ],
)
def test_an_opponent_that_fails_ends_training_with_one_line(
    code: str,
    status: int,
    more: list[str],
    ray_with_games: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("faulty.py").write_text(
        f"from battlesnake_gym import snakes\nsnakes.register('faulty', {code})\n"
    )
    arguments = ["--num-iters", "1", "--opponents", '["faulty.py"]', "--name", "mine", *more]
    assert train(tmp_path, *arguments) == status
    error = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"faulty\.py cannot play: \S*faulty\.py, line 2: KeyError: 0$", error)
    if status == 1:
        assert "Traceback" not in (tmp_path / "mine" / "run.json").read_text()


def test_evaluate_names_the_snake_or_rule_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("snake.py").write_text("def move(state):\n    return {'move': [][0]}\n")
    Path("rule.py").write_text(
        "from battlesnake_heuristics import Preference\n"
        "rules = [Preference(lambda view, move: 1 / 0)]\n"
    )
    for options, message in (
        (["--opponents", "snake.py"], r"snake\.py cannot play: snake\.py, line 2: IndexError"),
        (["--policy-rules", "rule.py"], r"rules cannot play: rule\.py, line 2: ZeroDivisionError"),
    ):
        with pytest.raises(SystemExit, match="2"):
            evaluate_command.main([str(DEFAULT_POLICY_PATH), "--games", "2", *options])
        assert re.search(message, capsys.readouterr().err)


def test_a_policy_with_a_flipped_bit_is_refused_by_every_loader(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.onnx"
    for suffix in (".onnx", ".json"):
        shutil.copy((trained / "model" / "policy.onnx").with_suffix(suffix), tmp_path)
    policy_loader.load_score_fn(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="sha256"):
        policy_loader.load_score_fn(path)
    with pytest.raises(SystemExit):
        evaluate_command.main([str(path), "--games", "1"])
    assert "sha256" in capsys.readouterr().err
    assert arena_command.main([str(path), "hungry"]) == 2
    assert "sha256" in capsys.readouterr().err


def test_command_export_evaluate_and_plot(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "snake.onnx"
    assert runs_export_command.main([str(trained), "-o", str(target)]) == 0
    assert target.read_bytes() == (trained / "model" / "policy.onnx").read_bytes()

    answers = []
    for policy in (target, trained):
        assert evaluate_command.main([str(policy), "--opponents", "random", "--games", "12"]) == 0
        answers.append(capsys.readouterr().out.partition(":")[2])
    assert "12 games" in answers[0]
    assert answers[0] == answers[1], "torch and onnx play the same games"

    for suffix in ("svg", "png"):
        picture = tmp_path / f"curves.{suffix}"
        words = [str(trained), str(trained), "-o", str(picture), "--x", "env_steps"]
        assert runs_plot_command.main(words) == 0
        assert picture.stat().st_size > 5_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--board-size", "7", "--name", "DQN-5x5-2"], r"board_size is \[7, 7\]"),
        (["--observation", "centered"], "name is centered but was planes"),
        (["--algorithm", "APEX", "--num-env-runners", "1", "--name", "DQN-5x5-2"],
         "algorithm is APEX but was DQN"),
        (["--rl.training.config.model_config.hidden_size", "8"], "hidden_size is 8 but was"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_something_else_is_refused_by_name(
    trained: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    before = rows(trained)
    assert train(trained.parent, "--num-iters", "5", *arguments) == 2
    assert re.search(message, capsys.readouterr().err)
    assert rows(trained) == before


def test_the_python_rules_are_refused_unless_they_are_allowed(
    ray_with_games: None,
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("battlesnake_gym.engine.engine.COMPILED", False)
    monkeypatch.setattr(
        "battlesnake_gym.engine.build_check.missing_reason", "{} lies in ruins".format
    )
    why = "battlesnake_gym.engine._engine lies in ruins"
    assert train(run_folder, "--num-iters", "1") == 2
    told = capsys.readouterr().err
    assert why in told
    assert "make build" in told
    assert "allow_python_engine" in told
    assert not run_folder.exists()
    assert train(run_folder, "--num-iters", "1", "--allow-python-engine", "true") == 0
    assert why in capsys.readouterr().out


def test_cpu_minutes_end_a_training_and_count_over_all_its_parts(
    ray_with_games: None,
    run_folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trained_minutes(limit: float, low: float, *, warns: bool) -> list[float]:
        monkeypatch.setattr(training_run, "_LOW_CPU_FRACTION", low)
        assert train(run_folder, "--cpu-minutes", str(limit)) == 0
        assert bool(re.search(r"\d+%.* CPU", capsys.readouterr().out)) == warns
        minutes = [float(row["cpu_minutes"]) for row in rows(run_folder / "DQN-5x5-2")]
        assert minutes[-1] >= limit
        assert all(before < limit for before in minutes[:-1])
        return minutes

    first = trained_minutes(0.01, 0.0, warns=False)
    assert trained_minutes(0.01, 9.0, warns=False) == first  # Nothing is left to train.
    limit = first[-1] + 0.01
    assert trained_minutes(limit, 9.0, warns=True)[: len(first)] == first


@pytest.fixture
def words() -> list[str]:
    """What the command is told."""
    return SMALL


@pytest.fixture
def command(run_folder: Path, words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A training that does not end by itself, in a process group of its own as in a terminal."""
    process = subprocess.Popen(
        [sys.executable, "-m", "battlesnake_gym", "train", *words, "--runs-dir", str(run_folder),
         "--num-iters", "100000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    yield process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


SMALL_EXIT = shlex.split("""
    --algorithm EXIT --seed 3 --num-env-runners 1 --moves-per-iteration 3000
    --moves-per-fragment 500 --match-pairs 2 --bootstrap-epochs 5
""")
GAMES = shlex.split("--num-snakes 2 --board-size 7 --seed 3 --num-env-runners 1")


@pytest.mark.parametrize(
    ("words", "delivered"),
    [
        (SMALL, "policy.onnx"),
        pytest.param(["--algorithm", "APEX", *GAMES], "policy.onnx", marks=pytest.mark.slow),
        pytest.param(["--algorithm", "PPO", *GAMES], "policy.onnx", marks=pytest.mark.slow),
        pytest.param(["--algorithm", "RLLIB_PPO", *GAMES], "policy.onnx", marks=pytest.mark.slow),
        pytest.param(SMALL_EXIT, None, marks=pytest.mark.slow),
    ],
    ids=["DQN", "APEX", "PPO", "RLLIB_PPO", "EXIT"],
)
def test_sigterm_to_the_whole_group_delivers_what_was_trained(
    command: subprocess.Popen[str], run_folder: Path, delivered: str | None
) -> None:
    """As a container's first process sends it: Ray's processes do not end before the checkpoint."""
    while not (found := list(run_folder.glob("*/progress.csv"))) or not rows(found[0].parent):
        assert command.poll() is None, command.communicate()
        time.sleep(0.05)
    os.killpg(command.pid, signal.SIGTERM)
    out, err = command.communicate()
    assert command.returncode == 143, err
    (run,) = run_folder.iterdir()
    assert run_summary.told(out, run)["result"].startswith("stopped; ")
    assert tensorboard_cards.check(run / "tensorboard")
    assert list((run / "checkpoints").iterdir())
    assert delivered is None or (run / "model" / delivered).is_file()


def test_one_process_a_run_and_ctrl_c_twice_is_as_good_as_once(
    command: subprocess.Popen[str], run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_folder / "DQN-5x5-2"
    while not ((run / "progress.csv").is_file() and rows(run)):
        assert command.poll() is None, command.communicate()
        time.sleep(0.05)
    assert train(run_folder, "--num-iters", "5") == 2
    assert re.search(rf"\b{command.pid}\b", capsys.readouterr().err)
    for _ in range(2):
        os.killpg(command.pid, signal.SIGINT)
        time.sleep(0.05)
    out, err = command.communicate()
    assert command.returncode == 130, err
    assert "Traceback" not in err
    last = checkpoints.CheckpointFolder(run / "checkpoints").newest()
    assert last is not None
    assert str(last) in out
    assert checkpoints.read_metadata(last)["training_iteration"] == len(rows(run))
    # Killed in the middle of a line: what the checkpoint keeps of the curve is whole.
    with (run / "progress.csv").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - 7)
        file.seek(0, os.SEEK_END)
        file.write(b"1.e,,\n")
    done = checkpoints.read_metadata(last)["training_iteration"]
    assert train(run_folder, "--num-iters", str(done + 1)) == 0
    assert [int(row["training_iteration"]) for row in rows(run)] == list(range(1, done + 2))


@pytest.mark.slow
def test_a_full_disk_ends_a_run_with_one_line_and_a_whole_checkpoint(
    trained: Path, tmp_path: Path
) -> None:
    """In a file system of its own, with room for two checkpoints and a half."""
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    if run(*own, "true").returncode:
        pytest.skip("needs root")
    endless = ("--runs-dir", "small/runs", "--num-iters", "100000", "--checkpoint-minutes", "0")
    small = shlex.join([*COMMAND, "train", *SMALL, *endless])
    (one,) = trained.glob("checkpoints/checkpoint_000004")
    size = sum(path.stat().st_size for path in one.rglob("*") if path.is_file())
    script = (
        f"mkdir small; mount -t tmpfs -o size={5 * size // 2} none small && {small}; status=$?; "
        "cp -r small kept; exit $status"
    )
    done = run(*own, "sh", "-c", script, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (told,) = [line for line in done.stderr.splitlines() if "No space left" in line]
    last = checkpoints.CheckpointFolder(
        tmp_path / "kept" / "runs" / "DQN-5x5-2" / "checkpoints"
    ).newest()
    assert last is not None
    assert "small/runs/DQN-5x5-2" in told
    assert told.endswith(str(Path("small", *last.parts[-4:])))


def test_no_resume_begins_anew(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / trained.name)
    assert train(tmp_path, "--num-iters", "1", "--no-resume") == 0
    assert len(rows(tmp_path / trained.name)) == 1


@pytest.mark.slow
def test_the_script_alone_as_sagemaker_calls_it(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "rllib_src" / "train-mabs.py"
    environment = os.environ | {
        "SM_MODEL_DIR": str(tmp_path / "model"),
        "SM_OUTPUT_DATA_DIR": str(tmp_path / "output" / "data"),
        "SAGEMAKER_BASE_DIR": str(tmp_path),
        "SM_HPS": json.dumps(
            {"num_snakes": "2", "board_size": 5, "num_iters": 2, "rl.training.config.lr": 5e-5}
        ),
    }
    words = ("--num_agents", "2", "--num_iters", "2", *SMALL[2:])
    process: Any = run(sys.executable, script, *words, env=environment, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert re.search(r"^training_iteration=2 .* episode_reward_mean=", process.stdout, re.M)
    assert (tmp_path / "model" / "policy.onnx").is_file()
    assert (tmp_path / "checkpoints" / "checkpoint_000002" / "metadata.json").is_file()
    assert (tmp_path / "output" / "data" / "progress.csv").is_file()
    assert not (tmp_path / "runs").exists()
