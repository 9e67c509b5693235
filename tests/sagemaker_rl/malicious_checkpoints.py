"""Checkpoints as an attacker would distribute them."""

import json
import os
import pickle
from pathlib import Path
from typing import Any


class _Command:
    def __init__(self, command: str) -> None:
        self._command = command

    def __reduce__(self) -> Any:
        return os.system, (self._command,)


def doctor(path: Path, ran: Path) -> None:
    """Replace a pickle by one that creates the file ``ran`` when it is read."""
    path.write_bytes(pickle.dumps({"weights": _Command(f"touch {ran}")}))


def mark_whole(checkpoint: Path) -> None:
    """Update the file sizes in the metadata, as an attacker would."""
    path = checkpoint / "metadata.json"
    facts = json.loads(path.read_text())
    facts["files"] = {name: (checkpoint / name).stat().st_size for name in facts["files"]}
    path.write_text(json.dumps(facts))
