"""``battlesnake-gym snakes mcp``: tools for LLM agents.

The server uses the Model Context Protocol on stdio. Each tool runs a command in a separate process,
which `battlesnake_server.sandbox` isolates. The process has limits on time, memory and file size,
and a minimal environment. The output of the command is shortened for the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import json
import os
import resource
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board, BoardError
from battlesnake_gym.common.command_line import Parser, reports_errors
from battlesnake_gym.rules.stages import RULESETS, STAGES
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_heuristics.analysis.mistakes import sample_positions
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_server import sandbox
from battlesnake_server.commands.snakes_check_command import write_template

MAX_REPLY_CHARS = 4000
"""Maximum number of characters of a reply.

A reply has at most 2,000 tokens if a token has at least two characters.
"""

_TOOL_TIMEOUT_S = 120
"""Maximum time for a check or an explanation, in seconds.

Longer tools, such as matches, use `_LONG_TOOL_TIMEOUT_S`.
"""

_LONG_TOOL_TIMEOUT_S = 600
_MAX_MEMORY_BYTES = 4 << 30
_MAX_OUTPUT_FILE_BYTES = 200 << 20
_ENVIRONMENT_VARIABLES = ("PATH", "HOME", "LANG", "PYTHONPATH", "VIRTUAL_ENV")
_AGENT_INSTRUCTIONS = (
    "Write Battlesnake snakes: read `rules`, create a snake with `new_snake`, edit its file, and "
    "`check` it after every edit. Keep an edit only if `check` with `against` the old copy does "
    "not reject it. Then use `match` and `ladder`; `explain_loss` and `analyze` explain losses."
)


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Serve until the client disconnects; exit with status 2 for invalid options."""
    options = parser().parse_args(argv)
    if not options.folder.is_dir():
        raise ValueError(f"{options.folder} is not a directory; create it first")
    kill_orphans = not sandbox.namespaces()
    if kill_orphans:
        sandbox.adopt_orphans()
    _build_server(options.folder.resolve(), kill_orphans).run()
    return 0


def parser() -> Parser:
    """Return the command's parser."""
    parser = Parser(
        prog="battlesnake-gym snakes mcp",
        description="Serve tools for LLM agents that write snakes over the Model Context Protocol "
        "on stdio: rules, templates, checks, matches, the ladder, explanations. Example of a "
        "client's command: battlesnake-gym snakes mcp my-snakes",
    )
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="directory that the tools read and write"
    )
    return parser


def _limit_resources(seconds: float) -> None:
    """Limit CPU time, memory and file size of this process, a new child process."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(2 * seconds) + 1,) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_OUTPUT_FILE_BYTES, _MAX_OUTPUT_FILE_BYTES))


def _shorten(text: str, max_chars: int = MAX_REPLY_CHARS) -> str:
    """Shorten ``text`` in the middle to at most ``max_chars`` characters."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2 - 30
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def _format_reply(text: str, following: str) -> str:
    """Format a tool's reply, followed by the suggested next step."""
    next_step = f"\n\nNext: {following}"
    return _shorten(text.strip(), MAX_REPLY_CHARS - len(next_step)) + next_step


def _build_server(folder: Path, kill_orphans: bool = False) -> MCPServer:
    """Build the server.

    Args:
        folder: Directory that contains all files that the tools read and write.
        kill_orphans: Whether to run one command at a time and to kill all child processes of this
            process after each command. This process must have called `sandbox.adopt_orphans`.
    """
    app = MCPServer("battlesnake", instructions=_AGENT_INSTRUCTIONS, log_level="WARNING")
    for tool in _Tools(folder, kill_orphans).list_all():
        app.add_tool(_with_tool_errors(tool))
    return app


def _with_tool_errors(tool: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """Wrap a tool so that the agent receives the text of a ``ValueError`` or ``OSError``."""

    @functools.wraps(tool)
    async def with_errors(*given: Any, **named: Any) -> str:
        try:
            return await tool(*given, **named)
        except (ValueError, OSError) as error:
            raise ToolError(_shorten(str(error), 300)) from error

    return with_errors


class _Tools:
    """Tools of an LLM agent.

    The server sends the names and docstrings of the tools to the agent.
    """

    def __init__(self, folder: Path, kill_orphans: bool) -> None:
        self._folder = folder
        self._kill_orphans = kill_orphans
        self._one_command = asyncio.Lock() if kill_orphans else contextlib.nullcontext()

    def list_all(self) -> tuple[Callable[..., Awaitable[str]], ...]:
        """Return the tools, in the order in which the server sends them."""
        return (
            *(self.rules, self.list_snakes, self.new_snake, self.check),
            *(self.match, self.ladder, self.explain_loss, self.analyze),
        )

    async def rules(self, topic: Literal["rules", "api"] = "rules") -> str:
        """Explain the rules of the game, or the HTTP API that a snake implements."""
        if topic == "api":
            board = Board.new(7, 7, ["mine", "other"])
            board.you_id = "mine"
            request = json.dumps(board.to_api(), separators=(",", ":"))
            text = (
                "GET / returns {apiversion: '1', color, head, tail, author}; POST /start, /move "
                'and /end get the body below; /move returns {"move": "up"} (or down, left, right; '
                f"y grows upwards) within game.timeout milliseconds.\n{request}"
            )
            return _format_reply(text, "new_snake, whose file needs no server")
        lines = [f"{name}: {', '.join(stages)}" for name, stages in RULESETS.items()]
        lines += [f"- {name}: {inspect.getdoc(stage) or ''}" for name, stage in STAGES.items()]
        return _format_reply("Stages of a turn, in order:\n" + "\n".join(lines), "new_snake")

    async def list_snakes(self) -> str:
        """List the built-in snakes, and the Python files in the folder."""
        lines = [f"{name}: {snakes.description(name)}" for name in snakes.names()]
        files = sorted(str(p.relative_to(self._folder)) for p in self._folder.rglob("*.py"))[:50]
        return _format_reply(
            "\n".join([*lines, f"Files: {', '.join(files) or 'none'}"]), "match or check"
        )

    async def new_snake(self, file: str) -> str:
        """Write a new snake from a template.

        `file` is the name of a Python file below the folder, such as my_snake.py.
        """
        path = self._resolve_path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_template(path)
        return _format_reply(path.read_text(), f"check {file}, then edit RULES")

    async def check(self, ctx: Context, file: str, against: str = "") -> str:
        """Check a snake's moves, speed and safety and, with `against`, its strength.

        The reply names filters that would have helped, and contains REJECTED if the snake fails.
        Copy the file before you edit it, so that you can check against the copy.
        """
        words = [self._resolve_snake(file)]
        if against:
            words += ["--against", self._resolve_snake(against)]
        following = "fix what failed, one edit at a time; undo an edit that is rejected"
        return await self._run_command(ctx, _TOOL_TIMEOUT_S, following, "snakes", "check", *words)

    async def match(self, ctx: Context, one: str, other: str, games: int = 100) -> str:
        """Compare two snakes by an SPRT on two-snake games.

        The replays are saved in `replays`.
        """
        options = f"--num-snakes 2 --sprt 0 50 --games {2 * max(1, min(games, 1000) // 2)}"
        options += " --jobs 1 --replays replays"
        words = [self._resolve_snake(one), self._resolve_snake(other), *options.split()]
        return await self._run_command(
            ctx, _LONG_TOOL_TIMEOUT_S, "explain_loss of a file in replays", "arena", *words
        )

    async def ladder(self, ctx: Context, file: str, minutes: float = 1) -> str:
        """Measure the Elo of a snake against opponents of fixed Elo."""
        limit = f"--max-minutes={min(max(minutes, 0.05), 9)}"
        words = [self._resolve_snake(file), limit, "--jobs=1"]
        return await self._run_command(
            ctx, _LONG_TOOL_TIMEOUT_S, "match against the rung above", "ladder", *words
        )

    async def explain_loss(self, ctx: Context, game: str, file: str) -> str:
        """Find the move that lost a recorded game, and explain the snake's decision."""
        snake = self._resolve_snake(file)
        words = [str(self._resolve_path(game)), "--snake", snake, "--strategy", snake]
        following = "edit the rule that preferred that move, then check"
        return await self._run_command(ctx, _TOOL_TIMEOUT_S, following, "game", "coach", *words)

    async def analyze(self, ctx: Context, position: str = "", game: str = "") -> str:
        """Show win probabilities and best moves of a position (board as text) or a game."""
        if game:
            words = [str(self._resolve_path(game)), "--nodes", "400"]
            return await self._run_command(
                ctx, _LONG_TOOL_TIMEOUT_S, "explain_loss of this game", "game", "analyze", *words
            )
        try:
            board = Board.from_text(position)
            samples = next(sample_positions([board], {snake.id for snake in board.living}))
            analysis = await asyncio.to_thread(PositionAnalyzer().analyze, board, samples)
        except (BoardError, ValueError) as error:
            example = str(Board.new(5, 5, ["a", "b"]))
            return _format_reply(f"{error}\nExample of a board:\n{example}", "analyze that board")
        lines = []
        for name, one in analysis.items():
            best = ", ".join(
                f"{choice.move} {choice.win_probability:.0%}" for choice in one.candidates
            )
            lines.append(
                f"{name}: win probability {one.win_probability:.0%}; best moves: {best or 'none'}"
            )
        return _format_reply(
            "\n".join(lines), "check that your snake plays the best move, or match"
        )

    def _resolve_path(self, name: str) -> Path:
        """Return the path of a file inside ``folder``."""
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise ValueError(f"{name} is outside {self._folder}; name a file inside it")
        return path

    def _resolve_snake(self, name: str) -> str:
        """Return the name of a built-in snake or of an existing file."""
        spec = SnakeSpec.parse(name)
        if spec.source in snakes.names() and not spec.label:
            return name

        def resolve_file(part: str) -> str:
            if not (path := self._resolve_path(part)).is_file():
                raise ValueError(f"no snake or file is called {name!r}; call list_snakes")
            relative = str(path.relative_to(self._folder))
            return f"./{relative}" if relative.startswith("-") else relative  # not an option

        return str(spec.with_paths(resolve_file))

    async def _run_command(self, ctx: Context, seconds: float, following: str, *words: str) -> str:
        """Run a command with one progress report per second; return the shortened output."""
        async with self._one_command:
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
                output = await self._run_isolated(ctx, seconds, Path(temporary), words)
        return _format_reply(output.decode(errors="replace"), following)

    async def _run_isolated(
        self, ctx: Context, seconds: float, temporary: Path, words: Iterable[str]
    ) -> bytes:
        """Run a command in the sandbox, and return the end of the output."""
        env = {name: os.environ[name] for name in _ENVIRONMENT_VARIABLES if name in os.environ}
        process = await asyncio.create_subprocess_exec(
            *sandbox.isolated(self._folder, temporary, words),
            cwd=self._folder,
            env=env | {"TMPDIR": str(temporary)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=functools.partial(_limit_resources, seconds),
        )
        began, output, stdout = time.monotonic(), b"", process.stdout
        assert stdout is not None

        async def read_output() -> None:
            nonlocal output
            while chunk := await stdout.read(65536):
                output = (output + chunk)[-1_000_000:]

        reading = asyncio.create_task(read_output())
        try:
            while True:
                await asyncio.wait([reading], timeout=1)
                if reading.done():
                    break
                elapsed = time.monotonic() - began
                last = output.decode(errors="replace").strip().rpartition("\n")[2]
                await ctx.report_progress(elapsed, seconds, _shorten(last, 200))
                if elapsed > seconds:
                    output += f"\nSTOPPED after {seconds:g} s: it hangs or is too slow".encode()
                    break
        finally:
            reading.cancel()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            if self._kill_orphans:
                sandbox.kill_children()
        return output
