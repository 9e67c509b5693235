"""Hyperparameters from command-line options, SageMaker's ``SM_HPS`` and experiments.

A hyperparameter is a field of a dataclass (``num_snakes``, ``lr``). The field defines the default,
the help text, the bounds and, for a `setting`, the field of RLlib's configuration. A name with the
prefix ``rl.training.config.`` sets any field of RLlib's configuration:
``rl.training.config.replay_buffer_config.capacity`` sets a dictionary entry.

Values are JSON (``5e-5``, ``true``, ``[256, 256]``). A value that is not valid JSON is a string.
Unknown names and invalid values raise `HyperparameterError`. This module imports neither torch nor
Ray.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import functools
import json
import operator
import re
import traceback
import types
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from battlesnake_gym.common.suggestions import nearest_name

CONFIG_PREFIX = "rl.training.config."
"""Prefix of hyperparameters that set fields of RLlib's configuration."""

STOP_CONDITIONS = ("num_iters", "minutes", "cpu_minutes", "driver_cpu_minutes", "env_steps")
"""Hyperparameters that end a run."""

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

_PYTHON_ONLY = re.compile(
    r"env|policies|callbacks.*|.*_(space|class|cls|connector|fn|function|spec|lookup)"
)
"""Fields of RLlib's configuration whose values are objects of Python, which JSON lacks."""

_NOT_IN_EVALUATION = re.compile(r"evaluation_|num_env_runners$|model_config(\.|$)|.*learner")
"""Fields of RLlib's configuration without an effect in ``evaluation_config``."""

_SERVICE_PREFIXES = ("sagemaker_", "_tuning_objective_metric")
"""Prefixes of the hyperparameters that SageMaker and its tuner add to a job.

``sagemaker-training`` removes these hyperparameters; the start scripts of SDK 3 do not.
"""


_BOUNDS: tuple[tuple[str, str, Callable[[Any, Any], bool]], ...] = (
    ("minimum", "at least", operator.ge),
    ("above", "more than", operator.gt),
    ("maximum", "at most", operator.le),
    ("below", "less than", operator.lt),
)
"""Argument of `hyperparameter`, words for the error message, and comparison of each bound."""


class HyperparameterError(ValueError):
    """Error raised if a hyperparameter has an unknown name or an invalid value."""


def hyperparameter(
    default: Any,
    help_text: str,
    aliases: tuple[str, ...] = (),
    target: str | None = None,
    **bounds: float,
) -> Any:
    """Return a dataclass field for a hyperparameter.

    Args:
        default: Default value.
        help_text: Help text in ``--help``.
        aliases: Other accepted names, which ``--help`` omits.
        target: Dotted path of the field of RLlib's configuration that the hyperparameter sets, or
            "" if the names are equal. None means that the hyperparameter sets no such field.
        **bounds: ``minimum`` (0 if there is no bound and no target), ``maximum``, ``above`` and
            ``below`` of a number, or of the values of a schedule; ``last_position``, the minimum
            last position of a schedule (1: also a fraction of the run, or 2: only env steps).
    """
    metadata = {
        "help": help_text,
        "aliases": aliases,
        "target": target,
        "default": default,
        "bounds": bounds or ({"minimum": 0} if target is None else {}),
    }
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def setting(default: Any, help_text: str, target: str = "", **options: Any) -> Any:
    """Return a dataclass field for a hyperparameter that sets a field of RLlib's configuration.

    See `hyperparameter` for the arguments.
    """
    return hyperparameter(default, help_text, target=target, **options)


def target_of(field: dataclasses.Field[Any]) -> str:
    """Return the dotted path of the field of RLlib's configuration that ``field`` sets."""
    return str(field.metadata["target"] or field.name)


@dataclasses.dataclass(frozen=True)
class CheckedFields:
    """Base of dataclasses whose fields `hyperparameter` and `setting` made.

    The constructor converts and checks all values.
    """

    def __post_init__(self) -> None:
        kinds = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            name, kind = field.name.rstrip("_"), kinds[field.name]
            try:
                _check_finite(name, getattr(self, field.name))
                value = convert_value(name, getattr(self, field.name), kind)
                _check_finite(name, value)
                if isinstance(value, list) and float in typing.get_args(kind):
                    _check_schedule(name, value, field.metadata["bounds"].get("last_position", 1))
                _check_bounds(name, value, field.metadata["bounds"])
            except HyperparameterError as error:
                default = _format_value(field.metadata["default"])
                raise HyperparameterError(f"{error}; the default is {default}") from None
            object.__setattr__(self, field.name, value)

    @classmethod
    def field_names(cls) -> dict[str, str]:
        """Return the name of the field for each name that sets a field.

        The names are names of fields and aliases. A `setting` also has these names with
        `CONFIG_PREFIX`, and the name of its field of RLlib's configuration.
        """
        names: dict[str, str] = {}
        for field in dataclasses.fields(cls):
            accepted = {field.name, *field.metadata["aliases"]}
            if field.metadata["target"] is not None:
                accepted |= {CONFIG_PREFIX + name for name in (*accepted, target_of(field))}
            names |= dict.fromkeys(accepted, field.name)
        return names

    @classmethod
    def given_fields(cls, given: Iterable[str]) -> list[str]:
        """Return the names of the fields that the names in ``given`` set."""
        names = cls.field_names()
        found = (names.get(name) or names.get(name.replace("-", "_")) for name in given)
        return list(dict.fromkeys(name for name in found if name))

    @classmethod
    def add_options(
        cls, parser: argparse.ArgumentParser, presets: Mapping[str, Any] | None = None
    ) -> None:
        """Add a command-line option for every field.

        Option names contain dashes or underscores; SageMaker's arguments contain underscores.

        Args:
            parser: Parser to extend.
            presets: Defaults of an experiment, keyed by name.
        """
        group = parser.add_argument_group(
            "hyperparameters", "also read from the JSON object in the environment variable SM_HPS"
        )
        names = cls.field_names()
        defaults = {names.get(name, name): value for name, value in (presets or {}).items()}
        for field in dataclasses.fields(cls):
            default = defaults.get(field.name, field.metadata["default"])
            text = field.metadata["help"].replace("%", "%%")
            if default is not None and default is not False:
                text = f"{text} (default: {_format_value(default)})"
            name = field.name.rstrip("_")
            for alias in (name, *field.metadata["aliases"]):
                add = functools.partial(group.add_argument, dest=f"hyperparameter.{alias}",
                                        metavar="VALUE", default=argparse.SUPPRESS)  # fmt: skip
                if f"--{alias}" in parser._option_string_actions:
                    continue
                dashes = f"-{alias}" if len(alias) == 1 else f"--{alias.replace('_', '-')}"
                add(dashes, help=text if alias == name else argparse.SUPPRESS)
                if dashes != f"--{alias}":
                    add(f"--{alias}", help=argparse.SUPPRESS)
        group.add_argument(
            "--hyperparameter",
            action="append",
            default=[],
            type=_parse_pair,
            metavar="NAME=VALUE",
            help=f"set any other hyperparameter, such as {CONFIG_PREFIX}tau=0.5 (repeatable); same "
            f"as --{CONFIG_PREFIX}tau 0.5",
        )

    @classmethod
    def fill(
        cls,
        given: Mapping[str, Any],
        presets: Mapping[str, Any] | None = None,
        unknown_name: Callable[[str], HyperparameterError] | None = None,
        options: Container[str] = (),
    ) -> tuple[Self, dict[str, Any]]:
        """Convert and check hyperparameters.

        Args:
            given: Values by name or alias. A string may contain JSON.
            presets: Values for names that ``given`` lacks.
            unknown_name: Function that returns the error for an unknown name.
            options: Names in ``given`` that override the other names of their fields.

        Returns:
            The dataclass instance, and the other fields of RLlib's configuration, keyed by dotted
            names without `CONFIG_PREFIX`.

        Raises:
            HyperparameterError: If a name is unknown, a value is invalid, or two names set the same
                value. The message has the name as given.
        """
        names = cls.field_names()
        known = [*names, f"{CONFIG_PREFIX}lr"]
        values: dict[str, Any] = {}
        overrides: dict[str, Any] = {}
        for source in (presets or {}, given):
            seen: dict[str, str] = {}
            for name, value in source.items():
                field = names.get(name) or names.get(name.replace("-", "_"), name)
                for other in seen.values():
                    if _is_nested(name, other) and (name in options) == (other in options):
                        raise HyperparameterError(
                            f"{name} and {other} overlap; use only one of them"
                        )
                if field in seen:
                    if (name in options) == (seen[field] in options):
                        raise HyperparameterError(
                            f"{name} and {seen[field]} set the same value; use only one of the "
                            "names"
                        )
                    if seen[field] in options:
                        continue
                seen[field] = name
                if field in names:
                    values[field] = value
                elif name.startswith(CONFIG_PREFIX):
                    parsed = parse_value(value) if isinstance(value, str) else value
                    _check_finite(name, parsed)
                    overrides[name.removeprefix(CONFIG_PREFIX)] = parsed
                else:
                    raise (unknown_name or functools.partial(unknown_name_error, known=known))(name)
        try:
            return cls(**values), overrides
        except ValueError as error:
            raise HyperparameterError(cls.restore_name(str(error), given)) from None

    @classmethod
    def restore_name(cls, message: str, given: Iterable[str]) -> str:
        """Return an error message about a field with the name in ``given``."""
        names = cls.field_names()
        field, _, rest = message.removeprefix("hyperparameter ").partition(" ")
        named_as = {names[name].rstrip("_"): name for name in given if name in names}
        if named_as.get(field, field) == field:
            return message
        return f"{named_as[field]} {rest}"


def _check_schedule(name: str, schedule: list[Any], last_position: float) -> None:
    """Reject a list that is no schedule ``[[position, value], ...]``."""
    wanted = "must be a float, or a schedule [[0, value], [env_steps, value], ...]"
    with contextlib.suppress(TypeError, ValueError):
        steps = [step for step, _ in schedule]
        numbers = all(type(entry) in (int, float) for pair in schedule for entry in pair)
        if numbers and len(steps) > 1 and steps[0] == 0 and steps == sorted(set(steps)):
            if steps[-1] >= last_position:
                return
            end = "the end of the run" if last_position == 1 else f"{last_position} env steps"
            wanted = f"must end at position {last_position} ({end}) or later"
    raise HyperparameterError(f"{name} {wanted}, got {schedule!r:.28}")


def _check_bounds(name: str, value: Any, bounds: Mapping[str, float]) -> None:
    """Reject a number, or the values of a schedule, outside of the bounds."""
    limits = [(words, holds, bounds[key]) for key, words, holds in _BOUNDS if key in bounds]
    for entry in value if isinstance(value, list) else [value]:
        number = entry[-1] if isinstance(entry, list | tuple) and entry else entry
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if not all(holds(number, limit) for _, holds, limit in limits):
            wanted = " and ".join(f"{words} {limit:g}" for words, _, limit in limits)
            raise HyperparameterError(f"{name} must be {wanted}, got {number!r}")


def _parse_pair(text: str) -> tuple[str, str]:
    """Parse ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text!r}")
    return name, value


def repeats_sm_hps(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether SageMaker made the arguments ``argv`` from ``SM_HPS``.

    ``sagemaker-training`` repeats all hyperparameters as options and loses the types of the values
    (``True``, ``a=1,b=2``, nothing for null). ``SM_HPS`` contains the original values.
    """
    repeated = json.loads(environ.get("SM_USER_ARGS") or "[]")
    return bool(repeated) and list(argv) == [str(word) for word in repeated]


def read_sm_hps(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the hyperparameters in ``SM_HPS``, without those that SageMaker itself adds.

    Raises:
        HyperparameterError: If ``SM_HPS`` is malformed.
    """
    try:
        given = load_json(environ.get("SM_HPS") or "{}")
    except json.JSONDecodeError as error:
        raise HyperparameterError(f"SM_HPS is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise HyperparameterError(f"SM_HPS must be a JSON object, got {given!r}")
    return {
        name: decode_twice_encoded(value)
        for name, value in given.items()
        if not name.startswith(_SERVICE_PREFIXES)
    }


def decode_twice_encoded(value: Any) -> Any:
    """Return a string without the second JSON encoding of `Framework.set_hyperparameters`.

    >>> decode_twice_encoded('"APEX"'), decode_twice_encoded("APEX"), decode_twice_encoded(2)
    ('APEX', 'APEX', 2)
    """
    return parse_value(value) if isinstance(value, str) and value[:1] == '"' else value


def read_options(rest: Iterable[str]) -> dict[str, str]:
    """Return the values of options that argparse does not know, keyed by name.

    An option has the form ``--NAME VALUE`` or ``--NAME=VALUE``.

    Raises:
        HyperparameterError: If a word is not an option, or if a value is missing.
    """
    values: dict[str, str] = {}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise HyperparameterError(f"unexpected argument {word!r}")
        name, equals, value = word.removeprefix("--").partition("=")
        if not equals and (value := next(words, "--")).startswith("--"):
            raise HyperparameterError(
                f"{word} needs a value, or is misspelled; see --help for the options"
            )
        values[name] = value
    return values


def _is_nested(name: str, other: str) -> bool:
    """Return whether one name is an entry of the other, or both set one option of the games."""
    paths = (path.replace("-", "_").removeprefix(CONFIG_PREFIX) for path in (name, other))
    one, two = sorted(paths, key=len)
    return two.startswith(f"{one}.") or two == f"env_config.{one}"


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
            f"hyperparameter {name} must be finite, got {value}; use a finite number"
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
    changed = _resolve_overrides(known, overrides)
    if "evaluation_config" in changed:
        prefix = f"{CONFIG_PREFIX}evaluation_config."
        evaluated = changed["evaluation_config"] or {}
        for name in filter(_NOT_IN_EVALUATION.match, evaluated):
            raise HyperparameterError(f"{prefix}{name} has no effect; omit it")
        changed["evaluation_config"] = _resolve_overrides(known, evaluated, prefix)
    if "model_config" in changed:  # A user's model_config may omit unchanged entries.
        before, own = config.model_config, changed.pop("model_config")
        if unknown := sorted(own.keys() - before.keys()):
            prefix = f"{CONFIG_PREFIX}model_config."
            raise unknown_name_error(prefix + unknown[0], [prefix + name for name in before])
        config.rl_module(model_config=before | own)
    config.update_from_dict(changed)


@contextlib.contextmanager
def convert_rllib_errors(names: Iterable[str]) -> Iterator[None]:
    """Convert errors of RLlib about its own settings to errors that name the settings.

    Errors of other code, such as a user's own algorithm, are not converted.

    Args:
        names: Names of the given settings; RLlib's own settings start with `CONFIG_PREFIX`.

    Raises:
        HyperparameterError: If RLlib raises an error, and ``names`` contains its settings.
    """
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        given = ", ".join(name for name in names if name.startswith(CONFIG_PREFIX))
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        if not given or not frame.f_globals.get("__name__", "").startswith(
            ("ray.", "sagemaker_rl.")
        ):
            raise
        reason = f"{type(error).__name__}: {error}"
        raise HyperparameterError(f"RLlib rejects {given} ({reason}); omit or fix it") from error


def _resolve_overrides(
    config: dict[str, Any], overrides: Mapping[str, Any], prefix: str = CONFIG_PREFIX
) -> dict[str, Any]:
    """Return the top-level entries of ``config`` that ``overrides`` change.

    A new value must have the type of the old value, unless the old value has no type to check. If
    the old value is a float, an integer is converted to float.

    Raises:
        HyperparameterError: If a name is unknown or a value has the wrong type.
    """
    changed: dict[str, Any] = {}
    for name, value in overrides.items():
        first, *path = name.split(".")
        if _PYTHON_ONLY.fullmatch(first) and value is not None:
            raise HyperparameterError(
                f"{prefix}{name} needs an object of Python, got {value!r}; omit it, or "
                "train in Python"
            )
        if first not in config:
            raise unknown_name_error(prefix + first, [prefix + key for key in config])
        node: dict[str, Any] = changed
        node.setdefault(first, copy.deepcopy(config[first]))
        key = first
        parent = prefix + first
        for part in path:
            node, key = node[key], part
            if not isinstance(node, dict) or key not in node:
                keys = node if isinstance(node, dict) else ()
                raise unknown_name_error(f"{parent}.{part}", [f"{parent}.{k}" for k in keys])
            parent += f".{part}"
        node[key] = _convert_like(prefix + name, value, node[key])
    return changed


def _format_value(value: Any) -> str:
    """Return the text from which `parse_value` makes ``value``."""
    return value if isinstance(value, str) else json.dumps(value)


def convert_value(name: str, value: Any, kind: Any) -> Any:
    """Convert ``value`` to the type ``kind``.

    The type is int, float, bool, str, list, dict, or a union of them and None. A string may contain
    JSON.

    >>> convert_value("gamma", 1, float), convert_value("gamma", "0.5", float | None)
    (1.0, 0.5)
    >>> convert_value("opponents", "hungry", list | None)
    Traceback (most recent call last):
    ...
    sagemaker_rl.job.hyperparameters.HyperparameterError: hyperparameter opponents must be list or \
null, got 'hungry'; write a list as '["hungry"]'
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    kinds = tuple(typing.get_origin(one) or one for one in kinds)
    if isinstance(value, str) and kinds != (str,):
        with contextlib.suppress(json.JSONDecodeError):
            value = load_json(value)
    for one in kinds:
        if one is type(None) and value is None:
            return None
        if one is list and isinstance(value, tuple):
            return list(value)
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if one is int and isinstance(value, float) and value.is_integer():
            return int(value)
        if type(value) is one:
            return value
    wanted = " or ".join("null" if one is type(None) else str(one.__name__) for one in kinds)
    hint = ""
    if isinstance(value, str) and {list, dict} & {*kinds}:
        if value.startswith(("{", "[")):
            hint = "; write JSON, with double quotes around names"
        elif list in kinds and float not in kinds:
            parts = [parse_value(one.strip()) for one in value.split(",") if one.strip()]
            hint = f"; write a list as {json.dumps(parts)!r}"
    raise HyperparameterError(f"hyperparameter {name} must be {wanted}, got {value!r}{hint}")


def parse_value(text: str) -> Any:
    """Return the JSON value of ``text``, or ``text`` itself if the JSON is invalid.

    >>> parse_value("5e-5"), parse_value("1.0"), parse_value("true"), parse_value("DQN")
    (5e-05, 1.0, True, 'DQN')
    """
    try:
        return load_json(text)
    except json.JSONDecodeError:
        return text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of a JSON object as a dictionary; reject a repeated key."""
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise HyperparameterError(f"a JSON object repeats the key {name!r}; give it once")
    return dict(pairs)


load_json = functools.partial(json.loads, object_pairs_hook=_unique_keys)
"""Function that loads JSON and rejects an object with a repeated key."""


def unknown_name_error(name: str, known: Iterable[str]) -> HyperparameterError:
    """Return the error for an unknown name.

    The message suggests the most similar name in ``known``.
    """
    close = nearest_name(name, sorted(known))
    hint = f"did you mean {close}?" if close else "--help lists all hyperparameters"
    return HyperparameterError(f"unknown hyperparameter {name}; {hint}")


def _convert_like(name: str, value: Any, default: Any) -> Any:
    """Convert ``value`` to the type of ``default``, the current value of the setting."""
    if isinstance(default, dict) and not isinstance(value, dict):
        raise HyperparameterError(f"{name} must be a mapping, got {value!r}; omit it or fix it")
    scalar = isinstance(default, bool | int | float | str)
    if not scalar or isinstance(value, list | dict) or value is None:
        # A schedule may replace a number, and null disables many settings.
        return value
    kind: Any = type(default)
    if kind is int:
        # A fraction or the string "auto" may replace an integer.
        kind = int | float | str
    return convert_value(name, value, kind if kind is not str else str | int | float | bool)
