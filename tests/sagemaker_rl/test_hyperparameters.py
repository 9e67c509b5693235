"""Names and types of hyperparameters from command-line options and SM_HPS."""

import argparse
import json
import re
from dataclasses import dataclass
from typing import Any

import pytest

from sagemaker_rl.job.hyperparameters import (
    STOP_CONDITIONS,
    CheckedFields,
    HyperparameterError,
    _resolve_overrides,
    hyperparameter,
    read_options,
    read_sm_hps,
    repeats_sm_hps,
    setting,
)
from sagemaker_rl.ray_launcher import Hyperparameters


@dataclass(frozen=True)
class Wanted(CheckedFields):
    num_agents: int = hyperparameter(4, "snakes")
    gamma: float = hyperparameter(0.5, "discount, in %")
    name: str | None = hyperparameter(None, "name")
    masked: bool = hyperparameter(True, "mask")


@dataclass(frozen=True)
class Renamed(CheckedFields):
    num_snakes: int = hyperparameter(4, "snakes", aliases=("num_agents",), maximum=16)
    lr: float | list[Any] = setting(1e-4, "learning rate", above=0)
    batch_size: int = setting(32, "batch", target="minibatch_size", minimum=1)
    capacity: int = setting(9, "buffer", target="replay_buffer_config.capacity")


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
    Wanted.add_options(parser)
    arguments, rest = parser.parse_known_args(argv)
    typed = {
        name.removeprefix("hyperparameter."): value
        for name, value in vars(arguments).items()
        if name.startswith("hyperparameter.")
    }
    typed |= dict(arguments.hyperparameter) | read_options(rest)
    return {**read_sm_hps({} if sm_hps is None else {"SM_HPS": json.dumps(sm_hps)}), **typed}


def test_flags_come_before_sm_hps_and_types_stay_what_they_are() -> None:
    values = read(
        ["--num-agents", "5", "--rl.training.config.gamma=1.0"],
        {"num_agents": "3", "rl.training.config.lr": "5e-5", "name": "snake", "masked": "false"},
    )
    plain, overrides = Wanted.fill(values)
    assert isinstance(overrides["gamma"], float)
    assert plain == Wanted(num_agents=5, name="snake", masked=False)
    assert overrides == {"lr": 5e-5, "gamma": 1.0}


def test_an_option_overrides_sm_hps_under_every_name() -> None:
    given = {"num_snakes": "2", "rl.training.config.lr": 5e-5, "num_agents": "3"}
    for option, snakes in (("num_agents", 3), ("num_snakes", 2)):
        filled, overrides = Renamed.fill(given, options=[option])
        assert (filled.num_snakes, filled.lr, overrides) == (snakes, 5e-5, {})
    with pytest.raises(HyperparameterError, match=r"num_agents .*num_snakes"):
        Renamed.fill(given)


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
        Wanted.fill(given)


def test_infinity_disables_a_limit_of_rllib() -> None:
    given = {"rl.training.config.vf_clip_param": float("inf")}
    assert Wanted.fill(given)[1] == {"vf_clip_param": float("inf")}
    with pytest.raises(HyperparameterError, match="finite"):
        Wanted.fill({"rl.training.config.vf_clip_param": float("nan")})


def test_sagemakers_spelling_of_flags() -> None:
    values = read(["--num_agents", "7", "--rl.training.config.lr", "1e-4"])
    assert Wanted.fill(values) == (Wanted(num_agents=7), {"lr": 1e-4})
    values = read(["--hyperparameter", "rl.training.config.epsilon=[[0, 0.1]]"])
    assert Wanted.fill(values)[1] == {"epsilon": [[0, 0.1]]}


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
        Wanted.fill(values)
    assert re.search(message, str(error.value))


def test_whole_numbers_become_what_is_wanted() -> None:
    plain, _ = Wanted.fill({"gamma": 1, "num_agents": 4.0})
    assert (plain.gamma, type(plain.gamma)) == (1.0, float)
    assert (plain.num_agents, type(plain.num_agents)) == (4, int)


def test_dotted_names_change_only_what_they_name() -> None:
    changed = _resolve_overrides(
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
        ("replay_buffer_config.iner.alpha", 1, r"did you mean \S+_buffer_config\.inner\?"),
        ("lr.schedule", 1, r"rl\.training\.config\.lr\.schedule"),
        ("lr", "fast", r"rl\.training\.config\.lr.* float.* 'fast'"),
        ("dueling", 1, r"rl\.training\.config\.dueling.* bool.* 1"),
    ],
)  # fmt: skip
def test_mistakes_in_dotted_names(name: str, value: Any, message: str) -> None:
    with pytest.raises(HyperparameterError) as error:
        _resolve_overrides(CONFIG, {name: value})
    assert re.search(message, str(error.value))


@pytest.mark.parametrize("name", STOP_CONDITIONS)
def test_a_stop_condition_is_positive(name: str) -> None:
    given: Any = {name: 0}
    with pytest.raises(HyperparameterError, match=f"{name} must be more than 0, got 0"):
        Hyperparameters(**given)


@pytest.mark.parametrize(("argv", "message"), [(["--lr"], "--lr"), (["runs"], "'runs'")])
def test_flags_that_make_no_sense(argv: list[str], message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        read(argv)
    with pytest.raises(SystemExit):
        read(["--hyperparameter", "lr"])


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[1]", "JSON object")])
def test_sm_hps_must_be_a_json_object(text: str, message: str) -> None:
    with pytest.raises(HyperparameterError, match=message):
        read_sm_hps({"SM_HPS": text})


def test_values_of_set_hyperparameters_are_decoded_twice() -> None:
    """`Framework.set_hyperparameters` and `Framework.hyperparameters` both encode as JSON."""
    values = {"algorithm": "APEX", "map": "", "lr": 1e-4, "num_snakes": [2, 4], "custom": 'a"b'}
    sm_hps = json.dumps({name: json.dumps(value) for name, value in values.items()})
    decoded = read_sm_hps({"SM_HPS": sm_hps})
    assert decoded == values | {"lr": "0.0001", "num_snakes": "[2, 4]"}


def test_the_flags_that_sagemaker_repeats_are_left_to_sm_hps() -> None:
    # sagemaker-training passes str(value), and dictionaries as a=1,b=2.
    repeated = ["--masked", "False", "--name", "", "--rewards", "kill=1.0,won=2.0"]
    environ = {"SM_USER_ARGS": json.dumps(repeated)}
    assert repeats_sm_hps(repeated, environ)
    assert not repeats_sm_hps(["--name", "snake"], environ)
    assert not repeats_sm_hps(repeated, {})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_agents": 20}, r"^num_agents must be at most 16, got 20; the default is 4$"),
        ({"num_snakes": "20"}, r"^num_snakes must be at most 16, got 20; the default is 4$"),
        ({"lr": 0}, r"^lr must be more than 0, got 0\.0"),
        ({"rl.training.config.lr": "[[0, 1e-3], [9, -1]]"}, r"^rl\.training\.config\.lr .* got -1"),
        ({"lr": [[5, 1e-3], [9, 1e-4]]}, r"^lr must be a float, or a schedule .* \[\[5, "),
        ({"rl.training.config.minibatch_size": 0}, r"config\.minibatch_size must be at least 1"),
        ({"lr": 1, "rl.training.config.lr": 1}, r"config\.lr and lr set the same value"),
    ],
)
def test_an_error_names_the_field_as_given_its_value_and_its_default(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(HyperparameterError, match=message):
        Renamed.fill(given)


def test_a_setting_is_given_by_its_name_or_by_that_of_rllib() -> None:
    settings, overrides = Renamed.fill(
        {"rl.training.config.replay_buffer_config.capacity": 5, "lr": "[[0, 1], [1, 0.5]]"},
        {"batch-size": 3, "rl.training.config.lr": 7, "rl.training.config.tau": 1},
    )
    assert settings == Renamed(lr=[[0, 1], [1, 0.5]], capacity=5, batch_size=3)
    assert overrides == {"tau": 1}
