"""The message about an unknown name: it suggests the nearest known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_LIST_CHARS = 90
"""Characters of names that an error lists; for more it names the command that lists them."""


def unknown_name_message(kind: str, name: object, known: Iterable[str], listed_by: str = "") -> str:
    """The error for an unknown ``name``, in one line.

    ``kind`` is what it should name; ``listed_by`` is the command that lists all of them, where
    there is one.

    >>> unknown("ruleset", "standrad", ["standard", "royale", "solo"])
    "unknown ruleset 'standrad'; did you mean standard? There are standard, royale, solo"
    """
    known = list(known)
    text = str(name)
    shown = repr(text if len(text) <= 40 else f"{text[:39]}…")
    close = nearest(text, known)
    hint = f"did you mean {close}? There are" if close else "choose one of"
    names = ", ".join(known)
    if len(names) > _MAX_LIST_CHARS and listed_by:
        rest = f"`{listed_by}` lists them"
        return f"unknown {kind} {shown}; " + (f"did you mean {close}? {rest}" if close else rest)
    if len(names) > _MAX_LIST_CHARS and close:
        return f"unknown {kind} {shown}; did you mean {close}?"
    if len(names) > _MAX_LIST_CHARS:
        names = names[:_MAX_LIST_CHARS].rpartition(", ")[0] + ", …"
    return f"unknown {kind} {shown}; {hint} {names}"


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name most like ``name``, "" where none is like it.

    A name that begins with ``name``, or ends with it after a dot or a dash, is like it too.

    >>> nearest("gmaes", ["games", "seed"]), nearest("lr", ["training.lr"]), nearest("x", ["games"])
    ('games', 'training.lr', '')
    """
    known = list(known)
    wanted = name.lower().replace("_", "-")
    ends = {other: other.lower().replace("_", "-") for other in known}
    for other, plain in ends.items():
        if wanted and (plain == wanted or plain.endswith((f".{wanted}", f"-{wanted}"))):
            return other
    close = difflib.get_close_matches(wanted, ends.values(), n=1, cutoff=0.6)
    found = close or [plain for plain in ends.values() if wanted[2:] and plain.startswith(wanted)]
    return next((other for other, plain in ends.items() if found and plain == found[0]), "")
