"""``battlesnake-gym snakes mcp``: the agents' workbench, by the Model Context Protocol on stdio.

Each tool runs what the command line runs, in a process of its own with bounds on time, memory and
files written, and without this process's environment; its report is cut to what an agent can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board, BoardError
from battlesnake_gym.common.command_line import Parser, print_error
from battlesnake_gym.rules import RULESETS
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_server.commands.snakes_check_command import write_template

MAX_REPLY_CHARS = 4000
"""Characters: no more than 2,000 tokens even where every second one is a token, as on boards."""

_TOOL_TIMEOUT_S = 120
"""For a check or an explanation; matches have `_LONG_TOOL_TIMEOUT_S`."""

_LONG_TOOL_TIMEOUT_S = 600
_MAX_MEMORY_BYTES = 4 << 30
_MAX_OUTPUT_FILE_BYTES = 200 << 20
_ENVIRONMENT = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
_NAMED = re.compile(r"[a-z0-9-]+(@\d+)?")
_INSTRUCTIONS = (
    "Write Battlesnake snakes: read `rules`, make one with `new_snake`, edit its file, `check` it "
    "after every edit, keep an edit only if `check` with `against` the old copy does not refuse "
    "it, then `match` and `ladder`; `explain_loss` and `analyse` say what went wrong."
)


def main(argv: list[str] | None = None) -> int:
    """Serve until the client leaves; 2 for a wrong call."""
    options = parser().parse_args(argv)
    if not options.folder.is_dir():
        return print_error(
            "battlesnake-gym snakes mcp", f"{options.folder} is no folder; make it first"
        )
    workbench(options.folder.resolve()).run()
    return 0


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym snakes mcp",
        description="Tools for agents that write snakes, over the Model Context Protocol on stdio: "
        "rules, templates, checks, matches, the ladder, explanations. Example of a client's "
        "entry: battlesnake-gym snakes mcp my-snakes",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="all files are below it")
    return parser


def limits(seconds: float) -> Callable[[], None]:
    """What a child sets itself before it runs: bounds on CPU time, memory and a file's size."""

    def set_limits() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(2 * seconds) + 1,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_OUTPUT_FILE_BYTES, _MAX_OUTPUT_FILE_BYTES))

    return set_limits


def shortened(text: str, most: int = MAX_REPLY_CHARS) -> str:
    """``text`` with its middle left out where it is too long."""
    if len(text) <= most:
        return text
    half = most // 2 - 30
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def answer(text: str, following: str) -> str:
    """What a tool says, and the sensible step after it."""
    next_step = f"\n\nNext: {following}"
    return shortened(text.strip(), MAX_REPLY_CHARS - len(next_step)) + next_step


def workbench(folder: Path) -> MCPServer:
    """The server, whose files are all below ``folder``."""
    app = MCPServer("battlesnake", instructions=_INSTRUCTIONS, log_level="WARNING")

    def tool(work: Callable[..., Awaitable[str]]) -> None:
        """Offer a tool; agents read its ``ValueError``, of other errors that there was one."""

        @functools.wraps(work)
        async def worded(*given: Any, **named: Any) -> str:
            try:
                return await work(*given, **named)
            except ValueError as error:
                raise ToolError(str(error)) from error

        app.add_tool(worded)

    def below(name: str) -> Path:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder):
            raise ValueError(f"{name} is not below {folder}; name a file inside it")
        return path

    def snake(name: str) -> str:
        """A named snake, or a file that there is."""
        if _NAMED.fullmatch(name) and name.partition("@")[0] in snakes.names():
            return name
        if not (path := below(name)).is_file():
            raise ValueError(f"there is no snake and no file {name!r}; call list_snakes")
        return str(path.relative_to(folder))

    async def run(ctx: Context, seconds: float, following: str, *words: str) -> str:
        """Run a command, with a sign of life every second; what it printed, cut."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "battlesnake_gym", *words),
            cwd=folder,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=limits(seconds),
        )
        assert process.stdout is not None
        began, said = time.monotonic(), b""
        signed = 0.0
        try:
            while True:
                took = time.monotonic() - began
                if took >= signed + 1:
                    signed = took
                    last = said.decode(errors="replace").strip().rpartition("\n")[2]
                    await ctx.report_progress(took, seconds, shortened(last, 200))
                if took > seconds:
                    said += f"\nSTOPPED after {seconds:g} s: it hangs, or does too much".encode()
                    break
                try:
                    chunk = await asyncio.wait_for(process.stdout.read(65536), signed + 1 - took)
                except TimeoutError:
                    continue
                if not chunk:
                    break
                said = (said + chunk)[-1_000_000:]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        return answer(said.decode(errors="replace"), following)

    @tool
    async def rules(topic: Literal["rules", "api"] = "rules") -> str:
        """How the game is played, or what a snake is asked over HTTP and answers."""
        if topic == "api":
            board = Board.new(7, 7, ["mine", "other"])
            board.you_id = "mine"
            asked = json.dumps(board.to_api(), separators=(",", ":"))
            text = (
                "GET / answers {apiversion: '1', color, head, tail, author}; POST /start, /move "
                'and /end get the body below; /move answers {"move": "up"} (or down, left, right; '
                f"y grows upwards) within game.timeout milliseconds.\n{asked}"
            )
            return answer(text, "new_snake, whose file needs no server")
        seen = {stage.name: stage for stages in RULESETS.values() for stage in stages}
        lines = [
            f"{name}: {', '.join(s.name for s in stages)}" for name, stages in RULESETS.items()
        ]
        lines += [f"- {n}: {inspect.getdoc(s.apply) or ''}" for n, s in seen.items()]
        return answer("Stages of a turn, in order:\n" + "\n".join(lines), "new_snake")

    @tool
    async def list_snakes() -> str:
        """The named snakes, and the files of snakes in the folder."""
        lines = [f"{name}: {snakes.description(name)}" for name in snakes.names()]
        files = sorted(str(p.relative_to(folder)) for p in folder.rglob("*.py"))[:50]
        return answer("\n".join([*lines, f"Files: {', '.join(files) or 'none'}"]), "match or check")

    @tool
    async def new_snake(file: str) -> str:
        """Write a new snake from a template, as a Python file below the folder (my_snake.py)."""
        path = below(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_template(path)
        return answer(path.read_text(), f"check {file}, then edit RULES")

    @tool
    async def check(ctx: Context, file: str, against: str = "") -> str:
        """Is a snake legal, in time and safe in given situations; with ``against``, no weaker?

        It names rules that would have helped, and says REFUSED where the snake must not be
        submitted. Copy the file before you edit it, to have something to check against.
        """
        words = [snake(file), *(["--against", snake(against)] if against else [])]
        following = "mend what failed, one edit at a time; undo an edit that is refused"
        return await run(ctx, _TOOL_TIMEOUT_S, following, "snakes", "check", *words)

    @tool
    async def match(ctx: Context, one: str, other: str, games: int = 100) -> str:
        """Is one snake stronger? Duels until a sequential test knows, kept in `replays`."""
        words = [snake(one), snake(other), "--per-game", "2", "--sprt", "0", "50"]
        words += ["--games", str(max(2, min(games, 1000))), "--jobs", "1", "--replays", "replays"]
        return await run(
            ctx, _LONG_TOOL_TIMEOUT_S, "explain_loss of a file in replays", "arena", *words
        )

    @tool
    async def ladder(ctx: Context, file: str, minutes: float = 1) -> str:
        """The Elo of a snake, by duels with snakes of known Elo."""
        words = [snake(file), "--minutes", str(min(max(minutes, 0.05), 9)), "--jobs", "1"]
        return await run(
            ctx, _LONG_TOOL_TIMEOUT_S, "match against the rung above", "ladder", *words
        )

    @tool
    async def explain_loss(ctx: Context, game: str, file: str) -> str:
        """The move that lost a recorded game, and what the snake's rules said there."""
        words = [str(below(game)), "--snake", snake(file), "--strategy", snake(file)]
        following = "edit the rule that spoke for that move, then check"
        return await run(ctx, _TOOL_TIMEOUT_S, following, "game", "coach", *words)

    @tool
    async def analyse(ctx: Context, position: str = "", game: str = "") -> str:
        """Chances and best moves of a position (text of a board), or of a game's every turn."""
        if game:
            words = [str(below(game)), "--milliseconds", "5"]
            return await run(
                ctx, _LONG_TOOL_TIMEOUT_S, "explain_loss of this game", "game", "analyse", *words
            )
        try:
            board = Board.from_text(position)
            judged = await asyncio.to_thread(PositionAnalyzer(seconds=0.05).analyze, board)
        except (BoardError, ValueError) as error:
            example = str(Board.new(5, 5, ["a", "b"]))
            return answer(f"{error}\nA board looks so:\n{example}", "analyse that board")
        lines = []
        for name, one in judged.items():
            best = ", ".join(
                f"{choice.move} {choice.win_probability:.0%}" for choice in one.candidates
            )
            lines.append(
                f"{name}: about {one.win_probability:.0%} to win; after {best or 'no move'}"
            )
        return answer("\n".join(lines), "check that your snake moves so, or match")

    return app
