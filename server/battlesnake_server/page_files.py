"""Files that pages contain: templates, style sheets and scripts of this package."""

from __future__ import annotations

import functools
import re
from pathlib import Path

SERVER_DIR = Path(__file__).parent


@functools.cache
def read_page_file(name: str) -> str:
    """Return the text of a file in the server's package."""
    return (SERVER_DIR / name).read_text("utf-8")


def read_board_script(name: str) -> str:
    """Return a script with the module ``board.js`` that it imports, for an inline script."""
    script = re.sub(r'import .* from "./board.js";\n', "", read_page_file(name))
    return "\n" + read_page_file("static/board.js").replace("export ", "") + script
