"""The tools for agents, called by the protocol's own client."""

import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client, StdioServerParameters, stdio_client
from mcp.server.mcpserver.exceptions import ToolError

from battlesnake_server import sandbox
from battlesnake_server.commands import snakes_mcp_command

MOST = snakes_mcp_command.MAX_REPLY_CHARS


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool; it must reply, or report progress, within 2 s."""
    signs = []

    async def sign(progress: float, total: float | None, message: str | None) -> None:
        signs.append(time.monotonic() - began)

    began = time.monotonic()
    result = await client.call_tool(tool, arguments, progress_callback=sign)
    assert time.monotonic() - began < 2 or min(signs) < 2
    text = str(getattr(result.content[0], "text", ""))
    if result.is_error:
        raise ToolError(text)
    assert len(text) <= MOST
    assert "\n\nNext: " in text
    return text


def ask(folder: Path, tool: str, **arguments: Any) -> str:
    """Return the reply or the error of a tool of a server in this process."""

    async def work() -> str:
        async with Client(snakes_mcp_command._build_server(folder.resolve())) as client:
            try:
                return await call(client, tool, **arguments)
            except ToolError as error:
                return f"refused: {error}"

    return anyio.run(work)


def test_an_agent_writes_checks_and_plays_a_snake_over_stdio(tmp_path: Path) -> None:
    async def work() -> None:
        words = ["-m", "battlesnake_gym", "snakes", "mcp", str(tmp_path)]
        server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
        async with Client(stdio_client(server)) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert len(names) == 8
            assert "eliminate:" in await call(client, "rules")
            assert '"board":' in await call(client, "rules", topic="api")
            assert "champion: " in await call(client, "list_snakes")
            assert "RULES = [" in await call(client, "new_snake", file="mine.py")
            assert "15 of 19" in await call(client, "check", file="mine.py")
            played = await call(client, "match", one="mine.py", other="hungry", games=3)
            assert re.search(r"mine\.py.* hungry(?s:.*) in 2 games", played)
            (game, *_) = (tmp_path / "replays").iterdir()
            name = str(game.relative_to(tmp_path))
            assert "turns" in await call(client, "analyze", game=name)
            await call(client, "explain_loss", game=name, file="mine.py")
            complete = await call(client, "analyze", position="> A . . B <\n. . . . . *")
            assert "win probability" in complete
            limited = await call(
                client, "analyze", position="view_radius=1 turn=5\n> A . . B <\n. . . . . *"
            )
            assert limited != complete  # The snakes do not see each other.
            assert "mine" in await call(client, "ladder", file="mine.py", minutes=0.05)

    anyio.run(work)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("check", {"file": "../outside.py"}, "is outside"),
        ("check", {"file": "link.py"}, "is outside"),
        ("check", {"file": "--help"}, "list_snakes"),
        ("match", {"one": "hungry", "other": "http://127.0.0.1:1"}, "list_snakes"),
        ("new_snake", {"file": "/tmp/other/mine.py"}, "is outside"),
        ("new_snake", {"file": "there.py"}, "exists"),
        ("explain_loss", {"game": "/etc/passwd", "file": "hungry"}, "is outside"),
        ("check", {"file": "a" * 5000}, "File name too long"),
        ("check", {"file": "a\0.py"}, "embedded null"),
    ],
)
def test_nothing_beyond_the_folder_is_touched(
    tool: str, arguments: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "link.py").symlink_to(__file__)
    (tmp_path / "there.py").touch()
    assert re.match(f"refused: .*{message}", ask(tmp_path, tool, **arguments))


def test_a_file_name_is_no_option(tmp_path: Path) -> None:
    (tmp_path / "--help").write_text("not a snake")
    assert "usage" not in ask(tmp_path, "check", file="--help")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("while True: pass", r"STOPPED.* 2"),
        ("while True: print('.', flush=True), time.sleep(0.1)", r"STOPPED.* 2"),
        ("raise ValueError(os.environ.get('SECRET', 'no secret'))", "ValueError: no secret"),
        ("bytearray(8 << 30)", "MemoryError"),
        ("print('x' * 10**6)", "characters"),
    ],
)
def test_a_snake_is_held_within_limits(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 2 if "STOPPED" in said else 60  # A busy machine needs seconds to start the command.
    monkeypatch.setattr(snakes_mcp_command, "_TOOL_TIMEOUT_S", limit)
    monkeypatch.setenv("SECRET", "a token")
    (tmp_path / "mine.py").write_text(f"import os, time\n{line}\n")
    assert re.search(said, ask(tmp_path, "check", file="mine.py"))


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        beats = open("beats", "a", buffering=1)
        for _ in range(600):
            beats.write(".")
            beats.flush()
            time.sleep(0.1)
    os._exit(0)
while not os.path.exists("beats"):
    time.sleep(0.01)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
@pytest.mark.parametrize("namespaces", [True, False])
def test_no_process_outlives_a_tool(namespaces: bool, tmp_path: Path) -> None:
    """A daemon of the snake's code ends with the tool, with namespaces and without."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.py").write_text(DAEMON)
    code = "from battlesnake_server import sandbox; from battlesnake_server.commands import "
    code += "snakes_mcp_command as command; "
    code += "" if namespaces else "sandbox.namespaces = lambda: (); "
    code += f"command.main([{str(folder)!r}])"

    async def work() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-c", code], env=dict(os.environ)
        )
        async with Client(stdio_client(server)) as client:
            await call(client, "check", file="mine.py")
            size = (folder / "beats").stat().st_size
            await anyio.sleep(0.5)
            assert (folder / "beats").stat().st_size == size

    anyio.run(work)


@pytest.mark.skipif(
    not sandbox.namespaces() or sandbox._landlock_version() < 1,
    reason="needs Landlock and user namespaces",
)
def test_files_outside_the_folder_and_the_network_are_out_of_reach(tmp_path: Path) -> None:
    folder, secret = tmp_path / "folder", tmp_path / "secret"
    folder.mkdir()
    secret.write_text("a token")
    (folder / "mine.py").write_text(
        "import os, socket, tempfile\n"
        f"for path in ({str(secret)!r}, '/etc/passwd', '/proc/{os.getpid()}/environ'):\n"
        "    try: print('read', open(path).read())\n"
        "    except OSError as error: print(type(error).__name__)\n"
        f"try: open({str(tmp_path / 'written')!r}, 'w')\n"
        "except OSError as error: print(type(error).__name__)\n"
        f"try: os.rename({str(secret)!r}, 'stolen')\n"
        "except OSError as error: print(type(error).__name__)\n"
        "try: socket.create_connection(('127.0.0.1', 9), timeout=1)\n"
        "except OSError as error: print(error.strerror)\n"
        "tempfile.TemporaryFile().close(); open(os.devnull, 'w').close()\n"
        "open('kept', 'w').close()\n"
        "raise ValueError('done')\n"
    )
    text = ask(folder, "check", file="mine.py")
    assert text.count("PermissionError") >= 4
    assert "Network is unreachable" in text
    assert "done" in text
    assert "read" not in text
    assert (folder / "kept").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "secret"}
