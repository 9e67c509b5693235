"""``battlesnake-gym game coach``: which move lost it, what the snake thought, how to do better."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.command_line import (
    Parser,
    add_json,
    positive,
    print_error,
    write_json,
)
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.replays.replay import Replay, ReplayError, find_files
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.loss_analysis import LossAnalysis, analyze_loss
from battlesnake_heuristics.rule_based.pipeline import explain
from battlesnake_heuristics.search import search
from battlesnake_server import address_policy
from battlesnake_server.commands.game_scenarios_command import asker, report
from battlesnake_server.replay_viewer import game_fetcher
from battlesnake_server.strategy_loader import strategy_factory

_ANALYSIS_CPU_S = 40.0
"""CPU-seconds of looking for the losing move of one game, or of all of ``--last``, about."""

_MOST_LATE = 10
"""Late moves that are listed."""


def main(argv: list[str] | None = None) -> int:
    """Coach on a game or a folder; the exit status says whether the snake has learned since.

    It is 0 where the snake as it is now masters all that it lost, 1 where not, 2 for a wrong call.
    """
    options = parser().parse_args(argv)
    try:
        if not search.COMPILED:
            raise ValueError(search.NOT_COMPILED_MESSAGE)
        if options.strategy or options.policy:
            strategy_factory(snake=options.strategy, policy=options.policy)
        if (options.game is None) == (options.last is None):
            raise ValueError("give a GAME, or --snake NAME --last N for the games of a ladder")
        if options.last is not None:
            if not options.snake or options.json or options.ruleset or options.map:
                raise ValueError("--last needs --snake, and takes no --json, --ruleset or --map")
            return _last(options)
        lessons = list(_lessons(options))
        if not lessons:
            if options.json:
                write_json([])
            else:
                sys.stdout.write(f"{options.snake} lost no game here\n")
            return 0
        if options.json:
            write_json([to_json(path, found) for path, _, found in lessons])
            with contextlib.redirect_stdout(sys.stderr):
                return _practise(lessons, options)
        for path, replay, found in lessons:
            sys.stdout.write(print_loss(path, replay, found, options.strategy or options.snake))
        if len(lessons) > 1:
            sys.stdout.write(kinds([found for _, _, found in lessons]))
        return _practise(lessons, options)
    except (ValueError, OSError) as error:
        return print_error("battlesnake-gym game coach", error)


def _last(options: argparse.Namespace) -> int:
    """The last games of a snake of the ladder: how it lost, its time, what the champion plays."""
    reach = address_policy.from_options(options)
    name, ids = game_fetcher.last_games(options.snake, options.last, reach)
    games: list[tuple[Path, Replay, str]] = []
    for game_id in ids:
        try:
            path = game_fetcher.resolve_game(game_id, reach)
            replay = Replay.load(path)
            games.append((path, replay, replay.snake_id(name)))
        except ReplayError as error:
            sys.stderr.write(f"skipped: {error}\n")
    if not games:
        raise ReplayError(f"no game of {options.snake!r} could be looked at")
    lost = [game for game in games if not game[1].last.snake(game[2]).alive]
    sys.stdout.write(
        f"{sanitize_text(name, 40)}: {len(games)} games, out in {len(lost)}\n{pace(games)}\n"
    )
    walks = [
        (path, replay, analyze_loss(replay, snake_id, _ANALYSIS_CPU_S / max(1, len(lost))))
        for path, replay, snake_id in lost
        if not replay.game.solo
    ]
    lessons = [(path, replay, found) for path, replay, found in walks if found is not None]
    if not lessons:
        return 0
    for path, _, found in lessons:
        where = (
            f", lost by {found.mistake.move} on turn {found.mistake.turn}" if found.mistake else ""
        )
        sys.stdout.write(f"{path.name}: {found.death_type} on turn {found.died}{where}\n")
    sys.stdout.write("\n" + kinds([found for _, _, found in lessons]))
    options.game, options.strategy = Path(name), options.strategy or "champion"
    return _practise(lessons, options)


def pace(games: list[tuple[Path, Replay, str]]) -> str:
    """How long the snakes of these games took for a move, beside the time that there was."""
    times, late = [], []
    for path, replay, snake_id in games:
        for number, turn in enumerate(replay.turns, replay.first.turn):
            if turn.problems.get(snake_id) == "timeout":
                late.append(f"{path.name.partition('.')[0]} turn {number}")
            elif turn.latency.get(snake_id, 0) > 0:  # 0: no move was made
                times.append(turn.latency[snake_id])
    allowed = ", ".join(sorted({f"{replay.game.timeout} ms" for _, replay, _ in games}))
    lines = [f"late moves: {len(late)}" + "".join(f"\n  {where}" for where in late[:_MOST_LATE])]
    if times:
        half, most = (sorted(times)[int(len(times) * share)] for share in (0.5, 0.95))
        lines.insert(0, f"time a move: half within {half:g} ms, 95 % within {most:g} ms, longest "
                     f"{max(times):g} ms; allowed: {allowed}")  # fmt: skip
    return "\n".join(lines)


def _lessons(options: argparse.Namespace) -> Iterator[tuple[Path, Replay, LossAnalysis]]:
    """What there is to learn from each game that the snake lost."""
    folder = Path(options.game)
    alone = not folder.is_dir()
    if alone:
        reach = address_policy.from_options(options)
        rules = {"ruleset": options.ruleset, "board_map": options.map}
        paths = [game_fetcher.resolve_game(options.game, reach, **rules)]
    else:
        paths = find_files(folder)
        _check_name(options, paths)
    for path in paths:
        try:
            replay = Replay.load(path)
            snake_id = replay.snake_id(options.snake or _loser(options, replay))
        except ReplayError as error:
            if alone:
                raise
            sys.stderr.write(f"skipped: {error}\n")
            continue
        seconds = _ANALYSIS_CPU_S if alone else math.inf
        found = None if replay.game.solo else analyze_loss(replay, snake_id, seconds)
        if found is not None:
            yield path, replay, found


def _check_name(options: argparse.Namespace, paths: list[Path]) -> None:
    """Refuse a name that no game of the folder has: where nothing was checked, nothing passes."""
    if not options.snake:
        raise ReplayError("--snake must name whose games these are")
    known: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(ReplayError):
            for snake in Replay.stream(path)[0].first.snakes:
                known |= dict.fromkeys((sanitize_text(snake.name or snake.id, 40), snake.id))
                if options.snake in (snake.name, snake.id):
                    return
    if not known:
        raise ReplayError(f"{options.game} holds no recorded game that can be read")
    raise ReplayError(unknown_name_message("snake", options.snake, known))


def _loser(options: argparse.Namespace, replay: Replay) -> str:
    """Whose game it is where no one is named: the last one to go out, which becomes ``--snake``."""
    if not replay.deaths():
        raise ReplayError("--snake must name whose games these are")
    last = replay.deaths()[-1][1]
    options.snake = replay.last.snake(last).name or last
    return last


def to_json(path: Path, found: LossAnalysis) -> dict[str, Any]:
    """One lost game as ``--json`` prints it; ``turn`` is null where no one move lost it."""
    mark = found.mistake
    return {
        "game": path.name,
        "snake_id": found.snake_id,
        "died": found.died,
        "kind": found.death_type,
        "turn": mark.turn if mark else None,
        "played": mark.move if mark else "",
        "chance": mark.played_win_probability if mark else 0.0,
        "saving": [{"move": move, "chance": share} for move, share in found.better_moves.items()],
        "cost": found.loss,
    }


def print_loss(path: Path, replay: Replay, found: LossAnalysis, name: str) -> str:
    """One lost game as text: the position, the move, the better ones, and why it was chosen."""
    who = sanitize_text(replay.last.snake(found.snake_id).name or found.snake_id, 40)
    head = f"{path.name}: {who} {found.death_type} on turn {found.died}\n"
    if found.board is None or found.mistake is None:
        return head + f"  No one move of its last {found.turns_analyzed} turns lost it.\n\n"
    board = found.board.copy()
    board.you_id = found.snake_id
    better = " or ".join(
        f"{move} (about {share:.0%})" for move, share in found.better_moves.items()
    )
    lines = [
        f"  The move that lost it was on turn {found.mistake.turn}:",
        textwrap.indent(str(board), "    "),
        f"  It played {found.mistake.move}, which wins about {found.mistake.played_win_probability:.0%} of the games that "
        f"go on from there; better was {better}.",
        *_reasons(found, name),
    ]
    return head + "\n".join(lines) + "\n\n"


def _reasons(found: LossAnalysis, name: str) -> list[str]:
    """What the rules of the snake said: as they were recorded, or asked again."""
    decision, how = found.recorded, "said"
    if decision is None or not decision.reasons:
        decision, how = _asked_again(found, name), "say now"
    if decision is None:
        return [f"  No reasons are recorded, and {name!r} is not a snake that can be asked again "
                "(--strategy names one)."]  # fmt: skip
    return [f"  What its rules {how}:", textwrap.indent(explain(decision), "    ")]


def _asked_again(found: LossAnalysis, name: str) -> Decision | None:
    try:
        strategy = snakes.make(name)
    except ValueError:
        return None
    assert found.board is not None
    board = found.board.copy()
    board.you_id = found.snake_id
    return strategy(board, board.game.timeout / 1000)


def kinds(lessons: list[LossAnalysis]) -> str:
    """The deaths by kind, the one that costs most wins first."""
    groups: dict[str, list[LossAnalysis]] = defaultdict(list)
    for found in lessons:
        groups[found.death_type].append(found)
    ordered = sorted(groups.items(), key=lambda item: -sum(one.loss for one in item[1]))
    width = max(map(len, groups))
    rows = [f"{'death':<{width}}  games  wins given away"]
    rows += [
        f"{kind:<{width}}  {len(of):>5}  {sum(one.loss for one in of):>15.1f}"
        for kind, of in ordered
    ]
    return "\n".join(rows) + "\n\n"


def _practise(lessons: list[tuple[Path, Replay, LossAnalysis]], options: argparse.Namespace) -> int:
    """Keep the scenarios, and put them to the snake as it is now."""
    made = [
        found.scenario(f"{path.name.partition('.')[0]} turn {found.mistake.turn}")
        for path, _, found in lessons
        if found.mistake is not None
    ]
    if not made:
        return 1
    stem = re.sub(r"[^\w-]+", "-", f"{Path(options.game).name.partition('.')[0]}-{options.snake}")
    target = options.output or Path(f"{stem}.txt")
    scenarios.save(target, made)
    sys.stdout.write(f"kept as {target}\n")
    options.snake = options.strategy or options.snake
    if not (options.url or options.policy):
        try:
            snakes.make(options.snake)
        except ValueError:
            sys.stdout.write(
                f"{options.snake!r} is not a snake of this machine; put them to yours: "
                f"battlesnake-gym game scenarios {target} --url http://...\n"
            )
            return 1
    ask = asker(options)
    outcomes = [ask(scenario, number) for number, scenario in enumerate(made)]
    passed = sum(outcome.passed for outcome in outcomes)
    for outcome in outcomes:
        sys.stdout.write(report(outcome).partition("\n")[0] + "\n")
    sys.stdout.write(f"{passed} of {len(made)} mastered by the snake as it is now\n")
    return 0 if passed == len(made) else 1


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym game coach",
        description="Find the move that lost a game, by games that go on from it and from others, "
        "show what its rules said there, keep the position as a scenario, and ask the snake again.",
        epilog="exit status: 0 where the snake masters all now, 1 where not, 2 for a wrong call. "
        "Example: battlesnake-gym game coach replays --snake mine",
    )
    add = parser.add_argument
    add("game", metavar="GAME", nargs="?", help="a lost game, or a folder of games; also an id "
        "or address (see `battlesnake-gym game analyse --help`)")  # fmt: skip
    add("--snake", metavar="NAME", help="whose game it was, by name or id (default, for one game: "
        "the last snake to go out)")  # fmt: skip
    add("--last", type=positive, metavar="N", help="instead of a GAME: the last N games of this "
        "snake of arena.battlesnake.com; its list of games needs the environment variable "
        "BATTLESNAKE_TOKEN, an API token of your account")  # fmt: skip
    add("-o", "--output", type=Path, metavar="FILE", help="where the scenarios are kept (default: "
        "GAME-NAME.txt here)")  # fmt: skip
    add_json(parser)
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--strategy", metavar="NAME", help="the named snake that it is, where its "
        "name in the game is another; `battlesnake-gym snakes`")  # fmt: skip
    who.add_argument("--policy", metavar="FILE", help="the policy.onnx that it is")
    who.add_argument("--url", metavar="URL", help="where it answers now")
    game_fetcher.add_options(parser)
    return parser
