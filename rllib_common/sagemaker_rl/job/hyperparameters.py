"""Hyperparameters from command-line options and SageMaker's ``SM_HPS``.

Plain names (``num_snakes``) are the fields of a dataclass. Dotted names set fields of RLlib's
configuration: ``rl.training.config.lr`` sets ``lr``, and
``rl.training.config.replay_buffer_config.capacity`` sets an entry of a dictionary.

Values are JSON (``5e-5``, ``true``, ``[256, 256]``). A value that is not valid JSON is a string.
Unknown names and wrong types are rejected.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from battlesnake_gym.common.suggestions import nearest_name

CONFIG_PREFIX = "rl.training.config."
"""Prefix of the fields of RLlib's configuration."""

LEGACY_RLLIB_NAMES = {
    "num_sgd_iter": "num_epochs",
    "sgd_minibatch_size": "minibatch_size",
    "train_batch_size": "train_batch_size_per_learner",
    "sample_batch_size": "rollout_fragment_length",
    "num_workers": "num_env_runners",
    "num_envs_per_worker": "num_envs_per_env_runner",
    "num_gpus": "num_gpus_per_learner",
    "num_gpus_per_worker": "num_gpus_per_env_runner",
    "num_cpus_per_worker": "num_cpus_per_env_runner",
    "num_cpus_for_driver": "num_cpus_for_main_process",
    "ignore_worker_failures": "restart_failed_env_runners",
    "timesteps_per_iteration": "min_sample_timesteps_per_iteration",
    "lambda_": "lambda",
}
"""Current names of RLlib's fields by their former names in published examples."""

_SERVICE_PREFIXES = ("sagemaker_", "_tuning_objective_metric")
"""Prefixes of the hyperparameters that SageMaker and its tuner add to a job.

``sagemaker-training`` removes these hyperparameters; the scripts of SDK 3 do not.
"""

_H = TypeVar("_H")


class HyperparameterError(ValueError):
    """Error raised if a hyperparameter has an unknown name or an invalid value."""


def hyperparameter(default: Any, help_text: str, aliases: tuple[str, ...] = ()) -> Any:
    """Return a field of a hyperparameter dataclass.

    Args:
        default: Default value.
        help_text: Line in ``--help``.
        aliases: Other accepted names, which ``--help`` does not show.
    """
    return dataclasses.field(default=default, metadata={"help": help_text, "aliases": aliases})


def add_flags(parser: argparse.ArgumentParser, cls: type[Any]) -> None:
    """Add an option for every field.

    Option names have dashes, or underscores as in SageMaker's arguments.
    """
    group = parser.add_argument_group(
        "hyperparameters", "also read from the JSON object in the environment variable SM_HPS"
    )
    for field in dataclasses.fields(cls):
        for name in (field.name, *field.metadata["aliases"]):
            add = functools.partial(group.add_argument, dest=f"hyperparameter.{name}",
                                    metavar="VALUE", default=argparse.SUPPRESS)  # fmt: skip
            dashes = f"--{name.replace('_', '-')}"
            shown = _help(field).replace("%", "%%") if name == field.name else argparse.SUPPRESS
            add(dashes, help=shown)
            if dashes != f"--{name}":
                add(f"--{name}", help=argparse.SUPPRESS)
    group.add_argument(
        "--hyperparameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"set any other value, such as {CONFIG_PREFIX}lr=5e-5 (repeatable); same as "
        f"--{CONFIG_PREFIX}lr 5e-5",
    )


def _help(field: dataclasses.Field[Any]) -> str:
    text: str = field.metadata["help"]
    return text if field.default in (None, False) else f"{text} (default: {field.default})"


def strip_sagemaker_arguments(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return ``argv`` without the arguments that SageMaker adds.

    ``sagemaker-training`` repeats all hyperparameters as options and loses the types of the values
    (``True``, ``a=1,b=2``, nothing for null). ``SM_HPS`` contains the original values.
    """
    repeated = json.loads(environ.get("SM_USER_ARGS") or "[]")
    return [] if list(argv) == [str(word) for word in repeated] else list(argv)


def collect(
    arguments: argparse.Namespace, rest: list[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return all given hyperparameters; options override ``SM_HPS``.

    The hyperparameters that SageMaker itself adds are omitted.

    Args:
        arguments: Arguments parsed by argparse.
        rest: Arguments that argparse did not recognize.
        environ: Environment variables.

    Raises:
        HyperparameterError: If ``SM_HPS`` or an argument is malformed.
    """
    try:
        given = json.loads(environ.get("SM_HPS") or "{}")
    except json.JSONDecodeError as error:
        raise HyperparameterError(f"SM_HPS is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise HyperparameterError(f"SM_HPS must be a JSON object, got {given!r}")
    # SageMaker passes numbers as strings if they were set as strings.
    values = {
        name: parse(value) if isinstance(value, str) else value
        for name, value in given.items()
        if not name.startswith(_SERVICE_PREFIXES)
    }
    values |= {
        name.removeprefix("hyperparameter."): parse(text)
        for name, text in vars(arguments).items()
        if name.startswith("hyperparameter.")
    }
    values |= dict(_pair(text, "--hyperparameter") for text in arguments.hyperparameter)
    return values | dict(_flags(rest))


def resolve_aliases(values: Mapping[str, Any], cls: type[Any]) -> dict[str, Any]:
    """Return ``values`` with aliases replaced with the names of the hyperparameters.

    Raises:
        HyperparameterError: If a hyperparameter is set under two names.
    """
    name_of = {alias: field.name for field in dataclasses.fields(cls) for alias in _aliases(field)}
    resolved: dict[str, Any] = {}
    for given, value in values.items():
        name = name_of.get(given, given)
        if name in resolved or (name != given and name in values):
            raise HyperparameterError(
                f"{given} and {name} set the same value; give only one of them"
            )
        resolved[name] = value
    return resolved


def name_aliases(message: str, arguments: argparse.Namespace, cls: type[Any]) -> str:
    """Return ``message`` with the alias that was typed, if it starts with a hyperparameter."""
    for field in dataclasses.fields(cls):
        for alias in _aliases(field):
            if f"hyperparameter.{alias}" in arguments and message.startswith(f"{field.name} "):
                return f"--{alias.replace('_', '-')}{message.removeprefix(field.name)}"
    return message


def _aliases(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    aliases: tuple[str, ...] = field.metadata.get("aliases", ())
    return aliases


def parse(text: str) -> Any:
    """Return the JSON value of ``text``, or ``text`` if the JSON is invalid.

    >>> parse("5e-5"), parse("1.0"), parse("true"), parse("DQN")
    (5e-05, 1.0, True, 'DQN')
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split_rllib_overrides(
    values: Mapping[str, Any],
    cls: type[_H],
    ignored: Iterable[str] = (),
    config_fields: Iterable[str] = ("lr",),
) -> tuple[_H, dict[str, Any]]:
    """Split hyperparameters into the dataclass ``cls`` and RLlib's overrides.

    Args:
        values: All hyperparameters by name.
        cls: Dataclass of the plain hyperparameters.
        ignored: Names to skip.
        config_fields: Fields of RLlib's configuration to suggest for an unknown name.

    Returns:
        The dataclass, and the overrides by dotted names without `CONFIG_PREFIX`.

    Raises:
        HyperparameterError: If a name is unknown, a value has the wrong type, or a number is not
            finite. The message suggests the most similar known name.
    """
    types_of = typing.get_type_hints(cls)
    plain: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    for name, value in values.items():
        _check_finite(name, value)
        if name.startswith(CONFIG_PREFIX):
            overrides[name.removeprefix(CONFIG_PREFIX)] = value
        elif name in types_of:
            plain[name] = convert(name, value, types_of[name])
            if isinstance(plain[name], int | float) and plain[name] < 0:
                raise HyperparameterError(f"hyperparameter {name} must be 0 or more, got {value}")
        elif name not in ignored:
            raise unknown(name, [*types_of, *(CONFIG_PREFIX + field for field in config_fields)])
    return cls(**plain), overrides


def _check_finite(name: str, value: Any) -> None:
    """Reject NaN and infinity in ``value``, which may be nested in lists and dictionaries.

    Raises:
        HyperparameterError: If a number is not finite.
    """
    entries: Iterable[Any] = ()
    if isinstance(value, dict):
        entries = value.values()
    elif isinstance(value, list | tuple):
        entries = value
    elif str(value).lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise HyperparameterError(
            f"hyperparameter {name} must be finite, got {value}; give a number, or leave it out"
        )
    for entry in entries:
        _check_finite(name, entry)


def apply_overrides(config: Any, overrides: Mapping[str, Any]) -> None:
    """Set fields of RLlib's ``config`` by dotted names.

    Raises:
        HyperparameterError: If a name is unknown or a value has the wrong type.
    """
    known = {}
    for key, value in config.to_dict().items():
        # Some fields are properties; the dictionary has their names with an underscore.
        public = key.removeprefix("_")
        if public == key or isinstance(getattr(type(config), public, None), property):
            known[public] = value
    changed = resolve_overrides(known, overrides)
    if "model_config" in changed:  # a complete model_config may omit unchanged entries
        config.rl_module(model_config=config.model_config | changed.pop("model_config"))
    config.update_from_dict(changed)


def resolve_overrides(config: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level entries of ``config`` that ``overrides`` change.

    A new value must have the type of the old value, unless the old value has no type to check. An
    integer is converted to float if the old value is a float.

    Raises:
        HyperparameterError: If a name is unknown or a value has the wrong type.
    """
    changed: dict[str, Any] = {}
    for name, value in overrides.items():
        first, *path = name.split(".")
        if first not in config:
            raise unknown(CONFIG_PREFIX + first, [CONFIG_PREFIX + key for key in config])
        node: dict[str, Any] = changed
        node.setdefault(first, _copy(config[first]))
        key = first
        for part in path:
            node, key = node[key], part
            if not isinstance(node, dict) or key not in node:
                known = (
                    [f"{CONFIG_PREFIX}{name[: -len(part)]}{k}" for k in node]
                    if isinstance(node, dict)
                    else []
                )
                raise unknown(CONFIG_PREFIX + name, known)
        node[key] = _like(CONFIG_PREFIX + name, value, node[key])
    return changed


def convert(name: str, value: Any, kind: Any) -> Any:
    """Convert ``value`` to ``kind``: int, float, bool, str, or a union with None.

    >>> convert("gamma", 1, float)
    1.0
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for one in (typing.get_origin(one) or one for one in kinds):
        if one is type(None) and value is None:
            return None
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if one is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if type(value) is (typing.get_origin(one) or one):
            return value
    wanted = " or ".join("null" if one is type(None) else str(one.__name__) for one in kinds)
    raise HyperparameterError(f"hyperparameter {name} must be {wanted}, got {value!r}")


def unknown(name: str, known: Iterable[str]) -> HyperparameterError:
    """Return the error for an unknown name, with the most similar known name."""
    close = nearest_name(name, sorted(known))
    hint = f"did you mean {close}?" if close else "--help lists them"
    return HyperparameterError(f"unknown hyperparameter {name}; {hint}")


def _like(name: str, value: Any, default: Any) -> Any:
    scalar = isinstance(default, bool | int | float | str)
    if not scalar or isinstance(value, list | dict) or value is None:
        # Schedules may replace numbers, and null disables many settings.
        return value
    kind: Any = type(default)
    if kind is int:
        # A fraction or "auto" may replace an integer.
        kind = int | float | str
    return convert(name, value, kind if kind is not str else str | int | float | bool)


def _copy(value: Any) -> Any:
    return {key: _copy(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _pair(text: str, flag: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise HyperparameterError(f"{flag} takes NAME=VALUE, got {text!r}")
    return name, parse(value)


def _flags(rest: list[str]) -> Iterable[tuple[str, Any]]:
    """Yield the names and values of ``--NAME VALUE`` and ``--NAME=VALUE``."""
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise HyperparameterError(f"unexpected argument {word!r}")
        if "=" in word:
            yield _pair(word.removeprefix("--"), word)
            continue
        value = next(words, None)
        if value is None:
            raise HyperparameterError(f"{word} needs a value")
        yield word.removeprefix("--"), parse(value)
