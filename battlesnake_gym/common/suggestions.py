"""Error messages about unknown names that suggest the most similar known name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_LIST_CHARS = 90
"""Maximum length of a list of names in an error message, in characters."""


def unknown_name_message(kind: str, name: object, known: Iterable[str], listed_by: str = "") -> str:
    """Return a one-line error message about an unknown name.

    Args:
        kind: Kind of the named object, such as "ruleset".
        name: The unknown name.
        known: All known names.
        listed_by: Command that lists the known names, or "".

    >>> unknown_name_message("ruleset", "standrad", ["standard", "royale", "solo"])
    "unknown ruleset 'standrad'; did you mean standard? Choose one of standard, royale, solo"
    """
    known = list(known)
    text = str(name)
    shown = repr(text if len(text) <= 40 else f"{text[:39]}…")
    close = nearest_name(text, known)
    hint = f"did you mean {close}? Choose one of" if close else "choose one of"
    names = ", ".join(known)
    if len(names) > _MAX_LIST_CHARS and listed_by:
        rest = f"`{listed_by}` lists them"
        return f"unknown {kind} {shown}; " + (f"did you mean {close}? {rest}" if close else rest)
    if len(names) > _MAX_LIST_CHARS and close:
        return f"unknown {kind} {shown}; did you mean {close}?"
    if len(names) > _MAX_LIST_CHARS:
        names = names[:_MAX_LIST_CHARS].rpartition(", ")[0] + ", …"
    return f"unknown {kind} {shown}; {hint} {names}"


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the known name most similar to ``name``, or "" if no name is similar.

    Known names that start with ``name``, or end with ``name`` after a dot or dash, count as
    similar.

    >>> nearest_name("gmaes", ["games", "seed"]), nearest_name("lr", ["training.lr"])
    ('games', 'training.lr')
    >>> nearest_name("x", ["games"])
    ''
    """
    known = list(known)
    wanted = name.lower().replace("_", "-")
    normalized = {other: other.lower().replace("_", "-") for other in known}
    for other, form in normalized.items():
        if wanted and (form == wanted or form.endswith((f".{wanted}", f"-{wanted}"))):
            return other
    close = difflib.get_close_matches(wanted, normalized.values(), n=1, cutoff=0.6)
    found = close or [
        form for form in normalized.values() if wanted[2:] and form.startswith(wanted)
    ]
    return next((other for other, form in normalized.items() if found and form == found[0]), "")
