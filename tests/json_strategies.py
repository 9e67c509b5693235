"""JSON as nobody would write it: any value at any place of a document."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Place = tuple[Any, ...]
"""The keys and indices that lead to a value."""

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, -1, 1, 2**31, 2**63, 10**30, -(10**30), 10**399, 1.5, 1e308])
    | st.sampled_from(["", "snake_0", "snake_1", "up", [], {}])
    | st.sampled_from(["\ud83d", "\x1b]0;title\x07", "two\nlines", "two\u2028lines"])
)
_KEYS = st.text(max_size=5) | st.sampled_from(["x", "y", "id", "body", "name"])

JUNK = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, above: Place = ()) -> Iterator[Place]:
    """All places within a document, which is not one itself."""
    pairs: Any = ()
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*above, key)
        yield from places(inner, (*above, key))


def replaced(document: Any, place: Place, value: Any) -> Any:
    """The document with another value at a place."""
    if not place:
        return value
    document = copy.deepcopy(document)
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return document
