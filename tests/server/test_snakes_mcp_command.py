"""The tools for agents, called by the protocol's own client."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp import Client, StdioServerParameters, stdio_client
from mcp.server.mcpserver.exceptions import ToolError

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
            played = await call(client, "match", one="mine.py", other="hungry", games=2)
            assert "mine.py against hungry" in played
            (game, *_) = (tmp_path / "replays").iterdir()
            name = str(game.relative_to(tmp_path))
            assert "turns" in await call(client, "analyze", game=name)
            await call(client, "explain_loss", game=name, file="mine.py")
            assert "win probability" in await call(client, "analyze", position="A . . . B")
            assert "mine" in await call(client, "ladder", file="mine.py", minutes=0.05)

    anyio.run(work)


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("check", {"file": "../outside.py"}, "is outside"),
        ("check", {"file": "link.py"}, "is outside"),
        ("check", {"file": "--help"}, "no snake or file is called"),
        ("match", {"one": "hungry", "other": "http://127.0.0.1:1"}, "no snake or file is called"),
        ("new_snake", {"file": "/tmp/other/mine.py"}, "is outside"),
        ("new_snake", {"file": "there.py"}, "exists; choose another name"),
        ("explain_loss", {"game": "/etc/passwd", "file": "hungry"}, "is outside"),
    ],
)
def test_nothing_beyond_the_folder_is_touched(
    tool: str, arguments: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "link.py").symlink_to(__file__)
    (tmp_path / "there.py").touch()

    async def ask() -> None:
        async with Client(snakes_mcp_command.build_server(tmp_path.resolve())) as client:
            with pytest.raises(ToolError, match=message):
                await call(client, tool, **arguments)

    anyio.run(ask)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("while True: pass", "STOPPED after 4 s"),
        ("while True: print('.', flush=True), time.sleep(0.1)", "STOPPED after 4 s"),
        ("raise ValueError(os.environ.get('SECRET', 'no secret'))", "snakes check: no secret"),
        ("bytearray(8 << 30)", "MemoryError"),
        ("print('x' * 10**6)", "characters left out"),
    ],
)
def test_a_snake_is_held_within_limits(
    line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snakes_mcp_command, "_TOOL_TIMEOUT_S", 4)
    monkeypatch.setenv("SECRET", "a token")
    (tmp_path / "mine.py").write_text(f"import os, time\n{line}\n")

    async def ask() -> None:
        async with Client(snakes_mcp_command.build_server(tmp_path.resolve())) as client:
            assert said in await call(client, "check", file="mine.py")

    anyio.run(ask)
