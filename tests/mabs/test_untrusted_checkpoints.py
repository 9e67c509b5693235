"""Checkpoints of strangers, whatever algorithm wrote them: nothing that they hold is run."""

import shlex
import shutil
from pathlib import Path

import pytest

from battlesnake_rl.commands import runs_export_command
from battlesnake_rl.commands.train_command import main
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.checkpoints import CheckpointError
from tests.sagemaker_rl.malicious_checkpoints import doctor, mark_whole

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

CONFIG = "--rl.training.config."
GAME = shlex.split("""
    --num-snakes 2 --board-size 5 --hyperparameter rl.training.config.model_config.channels=[8]
    --hyperparameter rl.training.config.model_config.strides=[2]
""")
EARLY = [f"{CONFIG}num_steps_sampled_before_learning_starts", "64"]
BATCH = [f"{CONFIG}train_batch_size_per_learner", "64"]
SETTINGS = {
    "DQN": [*GAME, *EARLY, "--num-env-runners", "0"],
    "APEX": [*GAME, *EARLY, "--num-env-runners", "1"],
    "PPO": [*GAME, "--num-env-runners", "0"],
    "RLLIB_PPO": [*GAME, *BATCH, f"{CONFIG}minibatch_size", "32", f"{CONFIG}num_epochs", "1"],
}
"""What RLlib saves for the launcher's algorithms, and what makes an iteration short."""


def train(runs: Path, name: str, iterations: int) -> int:
    common = ["--algorithm", name, "--name", "it", "--seed", "3", "--runs-dir", str(runs)]
    return main([*common, *SETTINGS[name], "--num-iters", str(iterations)])


@pytest.mark.parametrize("name", SETTINGS)
def test_no_algorithm_runs_what_a_checkpoint_holds(
    name: str, ray_with_games: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path, name, 1) == 0, capsys.readouterr().err
    (checkpoint,) = (tmp_path / "it" / "checkpoints").iterdir()
    ran, pure = tmp_path / "ran", tmp_path / "pure"
    shutil.copytree(checkpoint, pure)

    # What builds objects is not read: the run goes on without it.
    for pattern in checkpoints.IGNORED_FILES:
        for path in checkpoint.rglob(pattern):
            doctor(path, ran)
    mark_whole(checkpoint)
    assert train(tmp_path, name, 2) == 0
    assert "resuming from" in capsys.readouterr().out

    # Of all else any one pickle makes the checkpoint refused.
    pickles = [path for path in pure.rglob("*") if path.suffix in (".pkl", ".pt")]
    pickles = [path for path in pickles if path.name not in checkpoints.IGNORED_FILES]
    assert pickles
    for path in pickles:
        kept = path.read_bytes()
        doctor(path, ran)
        with (
            pytest.raises(CheckpointError, match="--trust-checkpoint"),
            checkpoints.numbers_only_copy(pure),
        ):
            pass
        path.write_bytes(kept)

    # And neither the run nor the export begins with a checkpoint of programs.
    shutil.rmtree(tmp_path / "it" / "checkpoints")
    doctored = tmp_path / "it" / "checkpoints" / checkpoint.name
    shutil.copytree(pure, doctored)
    for path in pickles:
        doctor(doctored / path.relative_to(pure), ran)
    mark_whole(doctored)
    assert train(tmp_path, name, 3) == 1
    assert "--trust-checkpoint" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        runs_export_command.main([str(doctored), "-o", str(tmp_path / "policy.onnx")])
    assert not ran.exists()
