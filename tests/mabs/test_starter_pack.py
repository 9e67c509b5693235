"""Hyperparameters as the starter pack published them work, or are answered with the right name."""

import json
import re
from typing import Any

import pytest

from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs.starter_pack import translate_hyperparameters

pytestmark = pytest.mark.filterwarnings("default")

PUBLISHED = {
    "num_iters": 10,
    "num_agents": 5,
    "iterate_map_size": False,
    "map_size": 11,
    "algorithm": "PPO",
    "additional_configs": {
        "lambda": 0.90,
        "gamma": 0.999,
        "kl_coeff": 0.2,
        "vf_clip_param": 175.0,
        "train_batch_size": 9216,
        "sample_batch_size": 96,
        "sgd_minibatch_size": 256,
        "num_sgd_iter": 3,
        "lr": 5.0e-4,
    },
    "use_heuristics_action_masks": False,
    "rl.training.config.num_cpus": 2,
    "rl.training.config.num_gpus": 0,
}
"""What the notebook that trains has, with what the post on scaling adds."""


def translated(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The current names, and the messages."""
    values = dict(given)
    return values, translate_hyperparameters(values)


def test_the_published_hyperparameters_are_taken() -> None:
    values = dict(PUBLISHED)
    said = translate_hyperparameters(values)
    prefix = "rl.training.config."
    assert values["algorithm"] == "RLLIB_PPO"
    assert translated({"algorithm": "PPO"}) == ({"algorithm": "PPO"}, [])
    assert values[prefix + "num_epochs"] == 3
    assert values[prefix + "minibatch_size"] == 256
    assert values[prefix + "train_batch_size_per_learner"] == 9216
    assert values[prefix + "rollout_fragment_length"] == 96
    assert values[prefix + "num_gpus_per_learner"] == 0
    assert values["num_env_runners"] == 1
    assert values["action_mask"] == "none"
    assert "iterate_map_size" not in values
    assert any(re.search(f"{prefix}num_sgd_iter .*{prefix}num_epochs.* 3$", line) for line in said)
    assert translated(values) == (values, [])


def test_masks_and_map_sizes_are_those_of_the_pack() -> None:
    assert translated({"heuristics": ["banned_wall_hits", "banned_forbidden_moves"]})[0] == {
        "action_mask": "wall+neck"
    }
    values, said = translated({"iterate_map_size": True})
    assert values == {"iterate_map_size": True, "observation": "max-bordered-51s"}
    assert len(said) == 1
    wide = {"iterate_map_size": True, "observation": "max-bordered-num"}
    assert translated(wide) == (wide, [])


def test_the_command_takes_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SM_HPS", json.dumps(PUBLISHED))
    status = main(["--dry-run"])
    told = capsys.readouterr()
    assert status == 0, told.err
    assert re.search(r"rl\.training\.config\.num_cpus.* num_env_runners.* 1", told.out + told.err)
    assert main(["--dry-run", "--rl.training.config.num_workers", "1"]) == 2
    assert "num_env_runners" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rl.training.checkpoint_freq": 50}, "set checkpoint_minutes"),
        ({"rl.training.config.model": {}}, "set rl.training.config.model_config"),
        ({"rl.training.config.multiagent": {}}, r"policy_sharing.* per_seat.* shared"),
        ({"additional_configs": 3}, r"additional_configs.* 3"),
        (
            {"additional_configs": {"lr": 1e-4}, "rl.training.config.lr": 1e-3},
            r"rl\.training\.config\.lr and additional_configs",
        ),
        ({"rl.training.config.num_cpus": 0}, r"CPUs.* 0"),
        ({"rl.training.config.num_cpus": 4, "num_env_runners": 3}, r"num_cpus .*num_env_runners"),
    ],
)
def test_what_has_no_counterpart_is_answered(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        translate_hyperparameters(given)
