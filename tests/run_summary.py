"""What a training says at its end, and being told to stop."""

from pathlib import Path

WORDS = ("result", "strength", "model", "report", "next")


def told(out: str, run: Path) -> dict[str, str]:
    """The last five lines of a training's ``out`` by their words; the report lies in ``run``."""
    lines = dict(line.split(": ", 1) for line in out.splitlines()[-len(WORDS) :])
    assert tuple(lines) == WORDS
    assert lines["report"].startswith(f"{run}/report.html, ")
    assert "</html>" in (run / "report.html").read_text()
    return lines
