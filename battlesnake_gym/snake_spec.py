"""A snake as text, in one grammar for all commands, options, files and environments.

The grammar is ``[LABEL=]SNAKE[+RULES.py][@NODES]``; ``docs/reference/snakes.md`` lists its forms.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

PAST_SELF = "past"
"""Opponent that plays past selves of the learner."""

BUILTIN_POLICY_NAME = "shipped"
"""Name of the policy that the package ``battlesnake_server`` includes."""

_FROZEN_PREFIX = "policy:"
_BUNDLE_SUFFIXES = (".zip", "snake.json")

# A label has neither slash nor colon, so the "=" in the query of a URL does not end a label.
_LABEL_PATTERN = re.compile(r"(?:([^=/:]+)=)?(.*)", re.DOTALL)
_RULES_PATTERN = re.compile(rf"(.*\.onnx|{BUILTIN_POLICY_NAME})\+(.*\.py)", re.DOTALL)
_NODES_PATTERN = re.compile(r"(.+)@([^@/\\]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SnakeSpec:
    """The parts of a snake's text.

    Every text has parts. `snakes.factory` rejects parts without a meaning.

    Attributes:
        source: Name, URL or path of the snake.
        label: Name of the snake in tables, or an empty string.
        rules: Path of the policy rules, or an empty string.
        nodes: Text of the number of nodes per move, or None.
    """

    source: str
    label: str = ""
    rules: str = ""
    nodes: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Split a text into its parts.

        >>> SnakeSpec.parse("mine=policy.onnx+my_rules.py")
        SnakeSpec(source='policy.onnx', label='mine', rules='my_rules.py', nodes=None)
        >>> SnakeSpec.parse("minimax@400").nodes, SnakeSpec.parse("http://a@host/?b=c").source
        ('400', 'http://a@host/?b=c')
        """
        label, source = _LABEL_PATTERN.fullmatch(text).groups()  # type: ignore[union-attr]
        spec = cls(source, label or "")
        if spec.is_remote or spec.is_frozen:
            return spec
        if found := _RULES_PATTERN.fullmatch(source):
            return replace(spec, source=found[1], rules=found[2])
        found = _NODES_PATTERN.fullmatch(source)
        if found is None or spec.is_file or os.path.isdir(source):  # noqa: PTH112  (any text)
            return spec
        return replace(spec, source=found[1], nodes=found[2])

    def __str__(self) -> str:
        """Return the text without the label."""
        rules = f"+{self.rules}" if self.rules else ""
        return self.source + rules + ("" if self.nodes is None else f"@{self.nodes}")

    @property
    def is_remote(self) -> bool:
        """Whether the snake is behind a URL."""
        return self.source.startswith(("http://", "https://"))

    @property
    def is_uri(self) -> bool:
        """Whether the source is a URI of any scheme, which names no local file."""
        return "://" in self.source

    @property
    def is_frozen(self) -> bool:
        """Whether the snake is a policy or a checkpoint with the observation of the learner."""
        return self.source.startswith(_FROZEN_PREFIX)

    @property
    def is_bundle(self) -> bool:
        """Whether the snake is a bundle, packed or unpacked."""
        return self.source.endswith(_BUNDLE_SUFFIXES) and not self.is_uri

    @property
    def is_file(self) -> bool:
        """Whether the snake is a frozen policy, a Python file, a ``.onnx`` file or a bundle."""
        known = self.is_frozen or self.is_bundle or self.source.endswith((".py", ".onnx"))
        return known and not self.is_uri

    @property
    def path(self) -> str:
        """The source without the prefix of a frozen policy."""
        return self.source.removeprefix(_FROZEN_PREFIX)

    def with_paths(self, change: Callable[[str], str]) -> Self:
        """Return the snake with changed paths of the source and of the rules."""
        prefix = _FROZEN_PREFIX if self.is_frozen else ""
        rules = self.rules and change(self.rules)
        return replace(self, source=prefix + change(self.path), rules=rules)
