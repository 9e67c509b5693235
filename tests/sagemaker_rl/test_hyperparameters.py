"""Names and types of hyperparameters from command-line options and SM_HPS."""

import argparse
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from sagemaker_rl.job.hyperparameters import (
    HyperparameterError,
    add_options,
    collect_values,
    hyperparameter,
    resolve_overrides,
    restore_typed_alias,
    split_rllib_overrides,
    strip_sagemaker_arguments,
)


@dataclass(frozen=True)
class Wanted:
    num_agents: int = hyperparameter(4, "snakes")
    gamma: float = hyperparameter(0.5, "discount, in %")
    name: str | None = hyperparameter(None, "name")
    masked: bool = hyperparameter(True, "mask")


CONFIG: dict[str, Any] = {
    "lr": 5e-4,
    "gamma": 0.99,
    "n_step": 3,
    "dueling": True,
    "seed": None,
    "epsilon": [[0, 1.0]],
    "replay_buffer_config": {"capacity": 100, "inner": {"alpha": 0.6}},
}


def read(argv: list[str], sm_hps: dict[str, Any] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_options(parser, Wanted)
    arguments, rest = parser.parse_known_args(argv)
    environ = {} if sm_hps is None else {"SM_HPS": json.dumps(sm_hps)}
    return collect_values(arguments, rest, environ)


def test_flags_come_before_sm_hps_and_types_stay_what_they_are() -> None:
    values = read(
        ["--num-agents", "5", "--rl.training.config.gamma=1.0"],
        {"num_agents": "3", "rl.training.config.lr": "5e-5", "name": "snake", "masked": "false"},
    )
    assert values == {
        "num_agents": 5,
        "rl.training.config.lr": 5e-5,
        "rl.training.config.gamma": 1.0,
        "name": "snake",
        "masked": False,
    }
    assert isinstance(values["rl.training.config.gamma"], float)
    plain, overrides = split_rllib_overrides(values, Wanted)
    assert plain == Wanted(num_agents=5, name="snake", masked=False)
    assert overrides == {"lr": 5e-5, "gamma": 1.0}


def test_values_that_sagemaker_itself_adds_are_left_out() -> None:
    """SDK 3 passes all of hyperparameters.json, also what its tuner adds."""
    added = {"_tuning_objective_metric": "elo", "sagemaker_program": '"train-mabs.py"'}
    assert read([], {"num_agents": 5} | added) == {"num_agents": 5}


@pytest.mark.parametrize("text", ["NaN", "nan", "Infinity", "-inf", "1e999"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gamma", "{}"),
        ("rl.training.config.lr", "{}"),
        ("rl.training.config.epsilon", "[[0, {}]]"),
        ("rl.training.config.replay_buffer_config", '{{"alpha": {}}}'),
    ],
)
def test_numbers_that_are_not_finite_are_refused(name: str, value: str, text: str) -> None:
    if text in ("nan", "-inf"):
        text = text if value == "{}" else f'"{text}"'  # not JSON, so it is a string
    given = read([f"--hyperparameter={name}={value.format(text)}"])
    with pytest.raises(HyperparameterError, match=f"{re.escape(name)} .*finite"):
        split_rllib_overrides(given, Wanted)


def test_infinity_disables_a_limit_of_rllib() -> None:
    given = {"rl.training.config.vf_clip_param": float("inf")}
    assert split_rllib_overrides(given, Wanted)[1] == {"vf_clip_param": float("inf")}
    with pytest.raises(HyperparameterError, match="finite"):
        split_rllib_overrides({"rl.training.config.vf_clip_param": float("nan")}, Wanted)


def test_sagemakers_spelling_of_flags() -> None:
    values = read(["--num_agents", "7", "--rl.training.config.lr", "1e-4"])
    assert values == {"num_agents": 7, "rl.training.config.lr": 1e-4}
    assert read(["--hyperparameter", "rl.training.config.epsilon=[[0, 0.1]]"]) == {
        "rl.training.config.epsilon": [[0, 0.1]]
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_agnets": 4}, r"num_agnets.* num_agents"),
        ({"num_agents": 4.5}, r"num_agents.* int.* 4\.5"),
        ({"num_agents": True}, r"num_agents.* int.* True"),
        ({"gamma": "high"}, r"gamma.* float.* 'high'"),
        ({"name": 3}, r"name.* str.* null.* 3"),
        ({"rl.training.confg.lr": 1}, r"rl\.training\.config\.lr"),
    ],
)
def test_mistakes_in_plain_names(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperparameterError) as error:
        split_rllib_overrides(values, Wanted)
    assert re.search(message, str(error.value))


def test_whole_numbers_become_what_is_wanted() -> None:
    plain, _ = split_rllib_overrides({"gamma": 1, "num_agents": 4.0}, Wanted)
    assert (plain.gamma, type(plain.gamma)) == (1.0, float)
    assert (plain.num_agents, type(plain.num_agents)) == (4, int)


def test_dotted_names_change_only_what_they_name() -> None:
    changed = resolve_overrides(
        CONFIG,
        {
            "lr": 1,
            "seed": 7,
            "epsilon": [[0, 0.2]],
            "replay_buffer_config.inner.alpha": 0,
            "replay_buffer_config.capacity": 200,
        },
    )
    assert changed == {
        "lr": 1.0,
        "seed": 7,
        "epsilon": [[0, 0.2]],
        "replay_buffer_config": {"capacity": 200, "inner": {"alpha": 0.0}},
    }
    assert isinstance(changed["lr"], float)
    assert CONFIG["replay_buffer_config"] == {"capacity": 100, "inner": {"alpha": 0.6}}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lrr", 1, r"rl\.training\.config\.lrr.* rl\.training\.config\.lr"),
        ("replay_buffer_config.capacitty", 1,
         r"rl\.training\.config\.replay_buffer_config\.capacity"),
        ("replay_buffer_config.inner.beta", 1, r"replay_buffer_config\.inner\.alpha\?"),
        ("lr.schedule", 1, r"rl\.training\.config\.lr\.schedule"),
        ("lr", "fast", r"rl\.training\.config\.lr.* float.* 'fast'"),
        ("dueling", 1, r"rl\.training\.config\.dueling.* bool.* 1"),
    ],
)  # fmt: skip
def test_mistakes_in_dotted_names(name: str, value: Any, message: str) -> None:
    with pytest.raises(HyperparameterError) as error:
        resolve_overrides(CONFIG, {name: value})
    assert re.search(message, str(error.value))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--lr"], "--lr"),
        (["runs"], "'runs'"),
        (["--hyperparameter", "lr"], r"--hyperparameter.* NAME=VALUE"),
    ],
)
def test_flags_that_make_no_sense(argv: list[str], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        read(argv)


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[1]", "JSON object")])
def test_sm_hps_must_be_a_json_object(text: str, message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        collect_values(argparse.Namespace(hyperparameter=[]), [], {"SM_HPS": text})


def test_the_flags_that_sagemaker_repeats_are_left_to_sm_hps() -> None:
    # sagemaker-training passes str(value), and dictionaries as a=1,b=2.
    repeated = ["--masked", "False", "--name", "", "--rewards", "kill=1.0,won=2.0"]
    environ = {"SM_USER_ARGS": json.dumps(repeated)}
    assert strip_sagemaker_arguments(repeated, environ) == []
    assert strip_sagemaker_arguments(["--name", "snake"], environ) == ["--name", "snake"]
    assert strip_sagemaker_arguments(repeated, {}) == repeated


@pytest.mark.parametrize(
    ("flag", "named"), [("--num-agents", "--num-agents"), ("--num-snakes", "num_snakes")]
)
def test_an_error_names_the_alias_that_was_typed(flag: str, named: str) -> None:
    @dataclass(frozen=True)
    class Renamed:
        num_snakes: int = hyperparameter(4, "snakes", aliases=("num_agents",))

    parser = argparse.ArgumentParser()
    add_options(parser, Renamed)
    arguments = parser.parse_args([flag, "20"])
    message = restore_typed_alias("num_snakes must be at most 16, got 20", arguments, Renamed)
    assert message == f"{named} must be at most 16, got 20"
    assert restore_typed_alias("map must be a name", arguments, Renamed) == "map must be a name"
