"""``battlesnake-gym game coach``: find the move that lost a game.

The command then tests the snake on the position before the losing move.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    add_view_radius_option,
    align_columns,
    output_file,
    plural,
    positive,
    print_json,
    reports_errors,
)
from battlesnake_gym.common.files import check_replaceable
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.common.untrusted_text import path_text
from battlesnake_gym.replays.replay import Replay, ReplayError, find_files
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis import scenarios
from battlesnake_heuristics.analysis.loss_analysis import LossAnalysis
from battlesnake_heuristics.rule_based.pipeline import explain
from battlesnake_heuristics.search import search
from battlesnake_server import address_policy
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.guarded_strategy import guard, make_strategy
from battlesnake_server.commands.game_scenarios_command import SNAKE_HELP, run_scenarios
from battlesnake_server.replay_viewer import game_fetcher
from battlesnake_server.strategy_loader import strategy_factory

_MAX_LATE_MOVES = 10
"""Maximum number of late moves in the report."""


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Analyze lost games, and test the snake on the positions before the losing moves.

    Returns:
        Exit status 0 if the snake now passes all scenarios, 1 if the snake fails a scenario, 2 for
        a usage error.
    """
    command = parser()
    options = command.parse_args(argv)
    if not search.COMPILED:
        raise ValueError(search.NOT_COMPILED_MESSAGE)
    check_replaceable(options.output, _check_scenarios)
    if not SnakeSpec.parse(options.strategy or "").is_remote:
        command.reject_given(options, ["follow_redirects"], "without a URL as --strategy")
        if options.game is not None and Path(options.game).exists():
            command.reject_given(options, ["allow_networks"], "without URLs")
        if options.strategy:
            strategy_factory(options.strategy)
    if (options.game is None) == (options.last is None):
        raise ValueError("give a GAME, or --snake NAME --last N for games of the leaderboard")
    if options.last is not None:
        if not options.snake or options.json or options.ruleset or options.map:
            raise ValueError("--last requires --snake; omit --json, --ruleset and --map")
        return _coach_on_last_games(options)
    if Path(options.game).is_dir():
        command.reject_given(options, ["ruleset", "map"], "on directories")
    losses = list(_iter_losses(_iter_games(options)))
    if not losses:
        if options.json:
            print_json([])
        else:
            sys.stdout.write(f"{options.snake} lost none of these games\n")
        return 0
    if options.json:
        print_json([_to_dict(path, loss) for path, _, loss in losses])
        with contextlib.redirect_stdout(sys.stderr):
            return _test_snake(losses, options)
    for path, replay, loss in losses:
        sys.stdout.write(_describe_loss(path, replay, loss, options.strategy or options.snake))
    if len(losses) > 1:
        sys.stdout.write(_format_cause_table([loss for _, _, loss in losses]))
    return _test_snake(losses, options)


def _check_scenarios(path: Path) -> None:
    """Raise ``ValueError`` if a file contains scenarios that this command did not write."""
    if not all(re.search(r" turn \d+$", scenario.name) for scenario in scenarios.load(path)):
        raise ValueError(f"{path} contains scenarios of another name")


def _coach_on_last_games(options: argparse.Namespace) -> int:
    """Coach a snake on its latest leaderboard games.

    The function analyzes the games, and tests the snake on the lost positions. The report contains
    losses, latencies and better moves.
    """
    addresses = AddressPolicy.from_options(options)
    name, ids = game_fetcher.list_last_games(options.snake, options.last, addresses)
    games = list(_load_games(options, ids, name))
    if not games:
        raise ReplayError(f"no game of {options.snake!r} could be read")
    lost = [game for game in games if not game[1].last.snake(game[2]).alive]
    sys.stdout.write(
        f"{sanitize_text(name, 40)}: {plural(len(games), 'game')}, {len(lost)} lost\n"
        f"{_format_latency_report(games)}\n"
    )
    losses = list(_iter_losses(lost))
    if not losses:
        return 0
    for path, _, loss in losses:
        move = f", lost by {loss.mistake.move} on turn {loss.mistake.turn}" if loss.mistake else ""
        sys.stdout.write(
            f"{path_text(path.name)}: {loss.cause_text} on turn {loss.eliminated_on}{move}\n"
        )
    sys.stdout.write("\n" + _format_cause_table([loss for _, _, loss in losses]))
    options.game, options.strategy = Path(name), options.strategy or "champion"
    return _test_snake(losses, options)


def _format_latency_report(games: list[tuple[Path, Replay, str]]) -> str:
    """Format the distribution of the snake's response times, and the late moves."""
    times, late = [], []
    for path, replay, snake_id in games:
        for number, turn in enumerate(replay.turns, replay.first.turn):
            if turn.problems.get(snake_id) == "timeout":
                late.append(f"{path_text(path.name.partition('.')[0])} turn {number}")
            elif turn.latency.get(snake_id, 0) > 0:  # At 0 ms, the snake made no move.
                times.append(turn.latency[snake_id])
    allowed = ", ".join(sorted({f"{replay.game.timeout} ms" for _, replay, _ in games}))
    lines = [f"late moves: {len(late)}" + "".join(f"\n  {move}" for move in late[:_MAX_LATE_MOVES])]
    if times:
        p50, p95 = (sorted(times)[int(len(times) * fraction)] for fraction in (0.5, 0.95))
        lines.insert(0, f"response time: median {p50:g} ms, 95th percentile {p95:g} ms, maximum "
                     f"{max(times):g} ms; timeout: {allowed}")  # fmt: skip
    return "\n".join(lines)


def _iter_losses(
    games: Iterable[tuple[Path, Replay, str]],
) -> Iterator[tuple[Path, Replay, LossAnalysis]]:
    """Yield the analysis of each game that the snake lost."""
    for path, replay, snake_id in games:
        loss = None if replay.game.is_solo else LossAnalysis.from_replay(replay, snake_id)
        if loss is not None:
            yield path, replay, loss


def _iter_games(options: argparse.Namespace) -> Iterator[tuple[Path, Replay, str]]:
    """Yield the selected games with the id of the snake."""
    if not Path(options.game).is_dir():
        return _load_games(options, [options.game], options.snake, is_single=True)
    paths = find_files(Path(options.game))
    _check_snake_name(options, paths)
    return _load_games(options, map(str, paths), options.snake)


def _load_games(
    options: argparse.Namespace, sources: Iterable[str], snake: str, *, is_single: bool = False
) -> Iterator[tuple[Path, Replay, str]]:
    """Yield the path of each game, its replay and the id of ``snake``.

    An unreadable game is skipped, or raises its error if ``is_single``.
    """
    addresses = AddressPolicy.from_options(options)
    for source in sources:
        try:
            path = game_fetcher.resolve_game(
                source, addresses, ruleset=options.ruleset, board_map=options.map
            )
            replay = Replay.load(path)
            own = replay.game.settings.view_radius
            if is_single and None not in (own, options.view_radius):
                raise ReplayError(f"omit --view-radius: the view radius of the game is {own}")
            replay.set_default_view_radius(options.view_radius)
            snake_id = replay.snake_id(snake or _select_last_eliminated(options, replay))
        except (ReplayError, OSError) as error:
            if is_single:
                raise
            sys.stderr.write(f"skipped: {error}\n")
            continue
        yield path, replay, snake_id


def _check_snake_name(options: argparse.Namespace, paths: list[Path]) -> None:
    """Reject a name that occurs in no game.

    Without this check, the command would succeed for a misspelled name, because no game would be
    tested.
    """
    if not options.snake:
        raise ReplayError("--snake must name the snake to coach")
    known: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(ReplayError, OSError):
            for snake in Replay.stream(path)[0].first.snakes:
                known |= dict.fromkeys((sanitize_text(snake.name or snake.id, 40), snake.id))
                if options.snake in (snake.name, snake.id):
                    return
    if not known:
        raise ReplayError(f"{options.game} contains no readable recorded game")
    raise ReplayError(unknown_name_message("snake", options.snake, known))


def _select_last_eliminated(options: argparse.Namespace, replay: Replay) -> str:
    """Return the id of the snake that was eliminated last.

    The function also sets ``--snake`` to the name of this snake.
    """
    if not replay.deaths():
        raise ReplayError("--snake must name the snake to coach")
    last = replay.deaths()[-1][1]
    options.snake = replay.last.snake(last).name or last
    return last


def _to_dict(path: Path, found: LossAnalysis) -> dict[str, Any]:
    """Convert the analysis of a lost game to a dict of JSON values.

    ``turn`` is None if no single move lost the game.
    """
    mistake = found.mistake
    return {
        "game": path.name,
        "snake_id": found.snake_id,
        "death_turn": found.eliminated_on,
        "death_type": found.cause_text,
        "turn": mistake.turn if mistake else None,
        "played_move": mistake.move if mistake else "",
        "win_probability": mistake.played_win_probability if mistake else 0.0,
        "better_moves": [
            {"move": move, "win_probability": win_probability}
            for move, win_probability in found.better_moves.items()
        ],
        "loss": found.loss,
    }


def _describe_loss(path: Path, replay: Replay, found: LossAnalysis, name: str) -> str:
    """Format the analysis of a lost game: position, move, better moves and reasons."""
    snake = sanitize_text(replay.last.snake(found.snake_id).name or found.snake_id, 40)
    head = f"{path_text(path.name)}: {snake} {found.cause_text} on turn {found.eliminated_on}\n"
    if found.board is None or found.mistake is None:
        return head + "  No single move lost the game.\n\n"
    board = found.board.copy()
    board.you_id = found.snake_id
    better = " or ".join(
        f"{move} (about {win_probability:.0%})"
        for move, win_probability in found.better_moves.items()
    )
    lines = [
        f"  The losing move was on turn {found.mistake.turn}:",
        textwrap.indent(str(board), "    "),
        f"  It played {found.mistake.move}, which left a win probability of about "
        f"{found.mistake.played_win_probability:.0%}; better: {better}.",
        *_format_reasons(found, name),
    ]
    return head + "\n".join(lines) + "\n\n"


def _format_reasons(found: LossAnalysis, name: str) -> list[str]:
    """Format the reasons for the losing move.

    If the game contains no reasons, the function formats the reasons of the current snake.
    """
    decision, title = found.recorded, "Recorded reasons"
    if decision is None or not decision.reasons:
        decision, title = _current_decision(found, name), "Reasons of the current snake"
    if decision is None:
        return [f"  No reasons are recorded, and {name!r} is not a built-in snake; name one with "
                "--strategy."]  # fmt: skip
    return [f"  {title}:", textwrap.indent(explain(decision), "    ")]


def _current_decision(found: LossAnalysis, name: str) -> Decision | None:
    """Return the current snake's decision on the losing position, or None.

    If the snake raises an exception, the decision is a fallback move whose reason names it.
    """
    try:
        strategy = guard(make_strategy(snakes.factory(name), 0))
    except ValueError:
        return None
    assert found.board is not None
    board = found.board.copy()
    board.you_id = found.snake_id
    return strategy(board.limited(), board.game.timeout / 1000)


def _format_cause_table(losses: list[LossAnalysis]) -> str:
    """Format a table of the causes of elimination, the largest total loss first."""
    groups: dict[str, list[LossAnalysis]] = defaultdict(list)
    for analysis in losses:
        groups[analysis.cause_text].append(analysis)
    ordered = sorted(groups.items(), key=lambda item: -sum(one.loss for one in item[1]))
    rows = [("death", "games", "total loss")]
    rows += [
        (kind, str(len(group)), f"{sum(one.loss for one in group):.1f}") for kind, group in ordered
    ]
    return align_columns(rows, right=(1, 2)) + "\n"


def _test_snake(
    losses: list[tuple[Path, Replay, LossAnalysis]], options: argparse.Namespace
) -> int:
    """Save the losing positions as scenarios, and test the current snake.

    Returns:
        Exit status 0 if the snake passes all scenarios, otherwise 1.
    """
    made = [
        loss.to_scenario(f"{path_text(path.name.partition('.')[0])} turn {loss.mistake.turn}")
        for path, _, loss in losses
        if loss.mistake is not None
    ]
    if not made:
        return 0
    stem = re.sub(r"[^\w-]+", "-", f"{Path(options.game).name.partition('.')[0]}-{options.snake}")
    target = options.output or Path(f"{stem}.txt")
    check_replaceable(target, _check_scenarios)
    scenarios.save(target, made)
    sys.stdout.write(f"saved as {target}\n")
    if options.strategy:
        options.snake = options.strategy
    else:
        try:
            snakes.make(options.snake)
        except ValueError:
            sys.stdout.write(
                f"{options.snake!r} is not a built-in snake; to test yours: "
                f"battlesnake-gym game scenarios {target} --snake http://...\n"
            )
            return 1
    results = run_scenarios(
        options, made, lambda text: sys.stdout.write(text.partition("\n")[0] + "\n")
    )
    passed = sum(result.passed for result in results)
    sys.stdout.write(f"{passed} of {len(made)} scenarios passed by the current snake\n")
    return 0 if passed == len(made) else 1


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game coach",
        description="Find the move that lost a game. Simulates games from that position and from "
        "alternatives, shows the rules that applied, saves the position as a scenario and tests "
        "the snake on it.",
        epilog="Exit status: 0 if the snake passes all scenarios, 1 if not, 2 for a usage error. "
        "Example: battlesnake-gym game coach replays --snake mine",
    )
    add = parser.add_argument
    add("game", metavar="GAME", nargs="?",
        help="replay of a lost game, a directory of replays, or a game id or URL")  # fmt: skip
    add("--snake", metavar="NAME", help="name or id of the snake to coach (default for a single "
        "game: the last snake eliminated)")  # fmt: skip
    add("--last", type=positive, metavar="N", help="coach the snake on its last N games at "
        "arena.battlesnake.com instead of GAME; needs an API token in "
        "$BATTLESNAKE_TOKEN")  # fmt: skip
    add("-o", "--output", type=output_file, metavar="FILE", help="file for the scenarios "
        "(default: GAME-NAME.txt in the current directory)")  # fmt: skip
    add_json_option(parser)
    add("--strategy", metavar="SNAKE", help=SNAKE_HELP)
    add_view_radius_option(parser)
    game_fetcher.add_options(parser)
    address_policy.add_options(parser)
    return parser
