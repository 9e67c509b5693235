"""Loader of YAML files for experiments, leagues and gauntlets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from battlesnake_gym.common.files import read_bounded

_MAX_YAML_BYTES = 1 << 16
"""Maximum size of a YAML file, in bytes."""

_MAX_YAML_KEYS = 1000
"""Maximum number of keys in a mapping, including merged keys."""


class _LimitedLoader(yaml.SafeLoader):
    """A safe YAML loader that rejects repeated keys and limits the size of merged mappings."""

    repeated: list[str] | None = None
    """Keys that are repeated, if they are not rejected; the last value is used."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Parse a mapping, and reject repeated keys, of which YAML would use the last."""
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            name = key.tag, str(key.value)
            if name in seen and self.repeated is not None:
                self.repeated.append(str(key.value))
            elif name in seen:
                problem = f"the key {key.value!r:.60} is repeated; omit one"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(name)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node, and name the line of a value that does not fit its tag."""
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
            kind = node.tag.rpartition(":")[2]
            problem = f"{node.value!r:.60} is not a valid {kind}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Merge the mappings that ``<<`` refers to, up to `_MAX_YAML_KEYS` keys."""
        super().flatten_mapping(node)
        if len(node.value) > _MAX_YAML_KEYS:
            raise yaml.YAMLError(f"a mapping has more than {_MAX_YAML_KEYS} keys")


# PyYAML follows YAML 1.1, which reads 1e-4 as a string. YAML 1.2 (section 10.3.2) and this
# resolver read 1e-4 as a number.
_LimitedLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def read_yaml(path: Path, repeated: list[str] | None = None) -> Any:
    """Return the content of a YAML file.

    Args:
        path: The file.
        repeated: List to which repeated keys are added; None to reject them.

    Raises:
        ValueError: If the file is not YAML or too long, or if a key is repeated; the message
            contains the path.
        OSError: If the file cannot be read.
    """
    data = read_bounded(path, _MAX_YAML_BYTES)
    try:
        loader = _LimitedLoader(data)
        loader.repeated = repeated
        return loader.get_single_data()
    except (yaml.YAMLError, RecursionError, ArithmeticError, ValueError) as error:
        raise ValueError(f"{path} is not YAML: {_describe_error(error)}") from error


def _describe_error(error: Exception) -> str:
    """Return the line and the cause of a YAML error.

    If the indentation contains tabs, the text also gives a remedy.
    """
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or problem is None:
        return " ".join(str(error).split())[:200]
    remedy = "; indent with spaces, not with a tab" if r"'\t'" in problem else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}{remedy}"
