"""What a program says while it works."""

import sys


def say(text: str) -> None:
    """One line on stdout, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
