"""Hyperparameters from command-line options and SageMaker's ``SM_HPS``.

A plain name (``num_snakes``) is a field of a dataclass. A name with the prefix
``rl.training.config.`` sets a field of RLlib's configuration: ``rl.training.config.lr`` sets
``lr``, and ``rl.training.config.replay_buffer_config.capacity`` sets a dictionary entry.

Values are JSON (``5e-5``, ``true``, ``[256, 256]``). A value that is not valid JSON is a string.
Unknown names and values of the wrong type raise `HyperparameterError`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from battlesnake_gym.common.suggestions import nearest_name

CONFIG_PREFIX = "rl.training.config."
"""Prefix of hyperparameters that set fields of RLlib's configuration."""

_UNBOUNDED = ("vf_clip_param",)
"""RLlib's limits that infinity disables."""

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
"""Current names of RLlib's settings, keyed by former names.

Published examples use the former names.
"""

_SERVICE_PREFIXES = ("sagemaker_", "_tuning_objective_metric")
"""Prefixes of the hyperparameters that SageMaker and its tuner add to a job.

``sagemaker-training`` removes these hyperparameters; the start scripts of SDK 3 do not.
"""

_HyperparametersT = TypeVar("_HyperparametersT")


class HyperparameterError(ValueError):
    """Error raised if a hyperparameter has an unknown name or an invalid value."""


def hyperparameter(
    default: Any,
    help_text: str,
    aliases: tuple[str, ...] = (),
    *,
    minimum: float | None = 0,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    target: str | None = None,
) -> Any:
    """Return a dataclass field for a hyperparameter.

    Args:
        default: Default value.
        help_text: Help text in ``--help``.
        aliases: Other accepted names, which ``--help`` omits.
        minimum: Smallest valid number, or None.
        maximum: Largest valid number, or None.
        above: Number that a valid number exceeds, or None.
        below: Number that exceeds a valid number, or None.
        target: Dotted path of the field of RLlib's configuration that the hyperparameter sets, or
            "" if the names are equal. None means that the hyperparameter sets no such field.
    """
    metadata = {
        "help": help_text,
        "aliases": aliases,
        "bounds": (minimum, maximum, above, below),
        "target": target,
        "default": default,
    }
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: _copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def setting(default: Any, help_text: str, target: str = "", **options: Any) -> Any:
    """Return a dataclass field for a hyperparameter that sets a field of RLlib's configuration.

    See `hyperparameter` for the arguments.
    """
    return hyperparameter(default, help_text, target=target, **{"minimum": None} | options)


def target_of(field: dataclasses.Field[Any]) -> str:
    """Return the dotted path of the field of RLlib's configuration that ``field`` sets."""
    return str(field.metadata["target"] or field.name)


def field_names(cls: type[Any]) -> dict[str, str]:
    """Return the name of the field for each name that sets a field of the dataclass ``cls``.

    The names are names of fields and aliases. A `setting` also has these names with
    `CONFIG_PREFIX`, and the name of its field of RLlib's configuration.
    """
    names = {}
    for field in dataclasses.fields(cls):
        accepted = {field.name, *_aliases(field)}
        if field.metadata.get("target") is not None:
            accepted |= {CONFIG_PREFIX + name for name in (*accepted, target_of(field))}
        names |= dict.fromkeys(accepted, field.name)
    return names


def check_fields(values: Any, names: Mapping[str, str] | None = None) -> None:
    """Check types and bounds of the fields of a dataclass instance, and convert the values.

    Args:
        values: Instance of a dataclass whose fields `hyperparameter` or `setting` made.
        names: Names for error messages, keyed by the names of fields.

    Raises:
        HyperparameterError: If a value is invalid.
    """
    kinds = typing.get_type_hints(type(values))
    for field in dataclasses.fields(values):
        name = (names or {}).get(field.name, field.name.rstrip("_"))
        value = convert_value(name, getattr(values, field.name), kinds[field.name])
        if isinstance(value, list) and float in typing.get_args(kinds[field.name]):
            _check_schedule(name, value)
        _check_bounds(name, value, field.metadata["bounds"])
        object.__setattr__(values, field.name, value)


def _check_schedule(name: str, schedule: list[Any]) -> None:
    """Reject a list that is no schedule ``[[env_steps, value], ...]``."""
    with contextlib.suppress(TypeError, ValueError):
        steps = [step for step, _ in schedule]
        numbers = all(isinstance(value, int | float) for pair in schedule for value in pair)
        if numbers and len(steps) > 1 and steps[0] == 0 and steps == sorted(set(steps)):
            return
    raise HyperparameterError(
        f"{name} must be a number, or a schedule of at least two pairs [env_steps, value] in "
        f"ascending order that starts at 0, such as [[0, 1e-3], [100000, 1e-4]]; got {schedule!r}"
    )


_BOUNDS: tuple[tuple[str, Callable[[Any, Any], bool]], ...] = (
    ("at least", operator.ge),
    ("at most", operator.le),
    ("more than", operator.gt),
    ("less than", operator.lt),
)
"""Words for the bounds of a number, and their comparisons."""


def _check_bounds(name: str, value: Any, bounds: tuple[float | None, ...]) -> None:
    """Reject a number, or the values of a schedule, outside of the bounds."""
    entries = value if isinstance(value, list) else [value]
    limits = [
        (*one, limit) for one, limit in zip(_BOUNDS, bounds, strict=True) if limit is not None
    ]
    for entry in entries:
        number = entry[-1] if isinstance(entry, list | tuple) and entry else entry
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if not all(holds(number, limit) for _, holds, limit in limits):
            wanted = " and ".join(f"{word} {limit:g}" for word, _, limit in limits)
            raise HyperparameterError(f"{name} must be {wanted}, got {number!r}")


def add_options(parser: argparse.ArgumentParser, cls: type[Any]) -> None:
    """Add a command-line option for every field of the dataclass ``cls``.

    Option names contain dashes or underscores; SageMaker's arguments contain underscores.
    """
    group = parser.add_argument_group(
        "hyperparameters", "also read from the JSON object in the environment variable SM_HPS"
    )
    for field in dataclasses.fields(cls):
        for name in (field.name, *field.metadata["aliases"]):
            add = functools.partial(group.add_argument, dest=f"hyperparameter.{name}",
                                    metavar="VALUE", default=argparse.SUPPRESS)  # fmt: skip
            dashes = f"--{name.replace('_', '-')}"
            shown = (
                _help_text(field).replace("%", "%%") if name == field.name else argparse.SUPPRESS
            )
            add(dashes, help=shown)
            if dashes != f"--{name}":
                add(f"--{name}", help=argparse.SUPPRESS)
    group.add_argument(
        "--hyperparameter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"set any other hyperparameter, such as {CONFIG_PREFIX}lr=5e-5 (repeatable); same as "
        f"--{CONFIG_PREFIX}lr 5e-5",
    )


def _help_text(field: dataclasses.Field[Any]) -> str:
    """Return the help text of a field, with its default value."""
    text: str = field.metadata["help"]
    return text if field.default in (None, False) else f"{text} (default: {field.default})"


def strip_sagemaker_arguments(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return ``argv`` without the arguments that SageMaker adds.

    ``sagemaker-training`` repeats all hyperparameters as options and loses the types of the values
    (``True``, ``a=1,b=2``, nothing for null). ``SM_HPS`` contains the original values.
    """
    repeated = json.loads(environ.get("SM_USER_ARGS") or "[]")
    return [] if list(argv) == [str(word) for word in repeated] else list(argv)


def collect_values(
    arguments: argparse.Namespace, rest: list[str], environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return all hyperparameters that the user set; options override ``SM_HPS``.

    The result omits the hyperparameters that SageMaker itself adds.

    Args:
        arguments: Arguments parsed by argparse.
        rest: Arguments that argparse did not recognize.
        environ: Environment variables.

    Returns:
        Parsed JSON values, keyed by name.

    Raises:
        HyperparameterError: If ``SM_HPS`` or an argument is malformed.
    """
    try:
        given = json.loads(environ.get("SM_HPS") or "{}")
    except json.JSONDecodeError as error:
        raise HyperparameterError(f"SM_HPS is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise HyperparameterError(f"SM_HPS must be a JSON object, got {given!r}")
    # The user may have set a number as a string. SageMaker passes this string unchanged.
    values = {
        name: parse_value(value) if isinstance(value, str) else value
        for name, value in given.items()
        if not name.startswith(_SERVICE_PREFIXES)
    }
    values |= {
        name.removeprefix("hyperparameter."): parse_value(text)
        for name, text in vars(arguments).items()
        if name.startswith("hyperparameter.")
    }
    values |= dict(_parse_pair(text, "--hyperparameter") for text in arguments.hyperparameter)
    return values | dict(_parse_options(rest))


def resolve_aliases(values: Mapping[str, Any], cls: type[Any]) -> dict[str, Any]:
    """Return ``values`` with aliases replaced by the names of the hyperparameters.

    Raises:
        HyperparameterError: If a hyperparameter is set under two names.
    """
    name_of = field_names(cls)
    resolved: dict[str, Any] = {}
    for given, value in values.items():
        name = name_of.get(given, given)
        if name in resolved or (name != given and name in values):
            raise HyperparameterError(
                f"{given} and {name} set the same value; use only one of the names"
            )
        resolved[name] = value
    return resolved


def restore_typed_alias(message: str, arguments: argparse.Namespace, cls: type[Any]) -> str:
    """Return ``message`` with the typed alias instead of the hyperparameter's name.

    Messages that do not start with the name of a hyperparameter stay unchanged.
    """
    for field in dataclasses.fields(cls):
        for alias in _aliases(field):
            if f"hyperparameter.{alias}" in arguments and message.startswith(f"{field.name} "):
                return f"--{alias.replace('_', '-')}{message.removeprefix(field.name)}"
    return message


def _aliases(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Return the aliases of a hyperparameter."""
    aliases: tuple[str, ...] = field.metadata.get("aliases", ())
    return aliases


def parse_value(text: str) -> Any:
    """Return the JSON value of ``text``, or ``text`` itself if the JSON is invalid.

    >>> parse_value("5e-5"), parse_value("1.0"), parse_value("true"), parse_value("DQN")
    (5e-05, 1.0, True, 'DQN')
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split_rllib_overrides(
    values: Mapping[str, Any],
    cls: type[_HyperparametersT],
    ignored: Iterable[str] = (),
    config_fields: Iterable[str] = ("lr",),
) -> tuple[_HyperparametersT, dict[str, Any]]:
    """Split hyperparameters into plain hyperparameters and RLlib overrides.

    Args:
        values: Values of all hyperparameters, keyed by name.
        cls: Dataclass of the plain hyperparameters.
        ignored: Names of hyperparameters to skip.
        config_fields: Fields of RLlib's configuration to suggest for an unknown name.

    Returns:
        The dataclass instance, and the overrides, keyed by dotted names without `CONFIG_PREFIX`.

    Raises:
        HyperparameterError: If a name is unknown, a value has the wrong type, or a number is not
            finite. The message suggests the most similar known name.
    """
    known = [field.name for field in dataclasses.fields(cls)]
    plain: dict[str, Any] = {}
    overrides: dict[str, Any] = {}
    for name, value in values.items():
        _check_finite(name, value)
        if name.startswith(CONFIG_PREFIX):
            overrides[name.removeprefix(CONFIG_PREFIX)] = value
        elif name in known:
            plain[name] = value
        elif name not in ignored:
            raise unknown_name_error(
                name, [*known, *(CONFIG_PREFIX + field for field in config_fields)]
            )
    settings = cls(**plain)
    if not hasattr(cls, "__post_init__"):
        check_fields(settings)
    return settings, overrides


def _check_finite(name: str, value: Any) -> None:
    """Reject NaN and infinity in ``value``.

    The value may be nested in lists and dictionaries. The limits in `_UNBOUNDED` may be infinite.

    Raises:
        HyperparameterError: If a number is not finite.
    """
    entries: Iterable[Any] = ()
    if isinstance(value, dict):
        entries = value.values()
    elif isinstance(value, list | tuple):
        entries = value
    elif name.endswith(_UNBOUNDED) and str(value).lower() in ("inf", "infinity"):
        return
    elif str(value).lower().lstrip("+-") in ("nan", "inf", "infinity"):
        raise HyperparameterError(
            f"hyperparameter {name} must be finite, got {value}; use a finite "
            "number, or omit the hyperparameter"
        )
    for entry in entries:
        _check_finite(name, entry)


def apply_overrides(config: Any, overrides: Mapping[str, Any]) -> None:
    """Set fields of RLlib's ``config``; the keys of ``overrides`` are dotted names.

    Raises:
        HyperparameterError: If a name is unknown or a value has the wrong type.
    """
    known = {}
    for key, value in config.to_dict().items():
        # Some fields are properties. The dictionary contains the names of these fields with an
        # underscore.
        public = key.removeprefix("_")
        if public == key or isinstance(getattr(type(config), public, None), property):
            known[public] = value
    changed = resolve_overrides(known, overrides)
    if "model_config" in changed:  # A user's model_config may omit unchanged entries.
        config.rl_module(model_config=config.model_config | changed.pop("model_config"))
    config.update_from_dict(changed)


def resolve_overrides(config: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the top-level entries of ``config`` that ``overrides`` change.

    A new value must have the type of the old value, unless the old value has no type to check. If
    the old value is a float, an integer is converted to float.

    Raises:
        HyperparameterError: If a name is unknown or a value has the wrong type.
    """
    changed: dict[str, Any] = {}
    for name, value in overrides.items():
        first, *path = name.split(".")
        if first not in config:
            raise unknown_name_error(CONFIG_PREFIX + first, [CONFIG_PREFIX + key for key in config])
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
                raise unknown_name_error(CONFIG_PREFIX + name, known)
        node[key] = _convert_like(CONFIG_PREFIX + name, value, node[key])
    return changed


def convert_value(name: str, value: Any, kind: Any) -> Any:
    """Convert ``value`` to the type ``kind``.

    The type is int, float, bool, str, or a union with None.

    >>> convert_value("gamma", 1, float)
    1.0
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    for one in (typing.get_origin(one) or one for one in kinds):
        if one is type(None) and value is None:
            return None
        if one is list and isinstance(value, tuple):
            return list(value)
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if one is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if type(value) is (typing.get_origin(one) or one):
            return value
    wanted = " or ".join("null" if one is type(None) else str(one.__name__) for one in kinds)
    raise HyperparameterError(f"hyperparameter {name} must be {wanted}, got {value!r}")


def unknown_name_error(name: str, known: Iterable[str]) -> HyperparameterError:
    """Return the error for an unknown name.

    The message suggests the most similar name in ``known``.
    """
    close = nearest_name(name, sorted(known))
    hint = f"did you mean {close}?" if close else "--help lists all hyperparameters"
    return HyperparameterError(f"unknown hyperparameter {name}; {hint}")


def _convert_like(name: str, value: Any, default: Any) -> Any:
    """Convert ``value`` to the type of ``default``, the current value of the setting."""
    scalar = isinstance(default, bool | int | float | str)
    if not scalar or isinstance(value, list | dict) or value is None:
        # A schedule may replace a number, and null disables many settings.
        return value
    kind: Any = type(default)
    if kind is int:
        # A fraction or the string "auto" may replace an integer.
        kind = int | float | str
    return convert_value(name, value, kind if kind is not str else str | int | float | bool)


def _copy(value: Any) -> Any:
    """Return a copy of nested dictionaries; other values are not copied."""
    return {key: _copy(entry) for key, entry in value.items()} if isinstance(value, dict) else value


def _parse_pair(text: str, flag: str) -> tuple[str, Any]:
    """Split ``NAME=VALUE`` into the name and the parsed value."""
    name, equals, value = text.partition("=")
    if not equals:
        raise HyperparameterError(f"{flag} must be NAME=VALUE, got {text!r}")
    return name, parse_value(value)


def _parse_options(rest: list[str]) -> Iterable[tuple[str, Any]]:
    """Yield the name and the value of each option.

    An option has the form ``--NAME VALUE`` or ``--NAME=VALUE``.
    """
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise HyperparameterError(f"unexpected argument {word!r}")
        if "=" in word:
            yield _parse_pair(word.removeprefix("--"), word)
            continue
        value = next(words, None)
        if value is None:
            raise HyperparameterError(f"{word} needs a value")
        yield word.removeprefix("--"), parse_value(value)
