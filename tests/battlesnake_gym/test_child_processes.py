"""Child processes of the packages do not import the user's files by accident."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_child_processes_do_not_put_the_current_folder_on_their_path() -> None:
    """``python -m`` and ``-c`` put it first, so ``copy.py`` there would replace the module."""
    folders = ("battlesnake_gym", "heuristics", "server", "rllib_src", "rllib_common")
    calls = {
        str(path.relative_to(ROOT)): re.findall(r"sys\.executable,\s*\"(-\w)", path.read_text())
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
    }
    assert sum(map(len, calls.values())) >= 6
    assert not [path for path, flags in calls.items() if {"-m", "-c"} & {*flags}]
