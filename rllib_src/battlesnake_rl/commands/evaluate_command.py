"""``battlesnake-gym evaluate``: measure the strength of a policy.

The result is the policy's Elo, or its score against built-in snakes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    plural,
    positive,
    print_json,
    seed,
)
from battlesnake_gym.env.seat_memory import ScoreFn
from battlesnake_gym.snake_spec import PAST_SELF, SnakeSpec
from battlesnake_heuristics.rating.ladder import Placement
from battlesnake_heuristics.rating.sprt import wilson_interval
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.pipeline import PipelineStep
from battlesnake_rl.mabs.policy.policy_loader import load_score_fn
from battlesnake_rl.mabs.strength import ladder_evaluator

_DEFAULT_NUM_GAMES = 200


def _play_against(
    policy: tuple[ScoreFn, dict[str, Any]],
    rules: Sequence[PipelineStep],
    opponents: list[str],
    arguments: argparse.Namespace,
) -> tuple[str, dict[str, Any]]:
    """Play ``--games`` games in parallel; ``opponents`` play in every game.

    The policy has a random seat in each game.

    Returns:
        The result as text, and its figures for ``--json``.
    """
    num_games = arguments.games
    own_seats = np.random.default_rng(arguments.seed).integers(len(opponents) + 1, size=num_games)
    with _progress_bar(num_games) as bar:
        played = ladder_evaluator.play_games_batched(
            *policy,
            [opponents] * num_games,
            own_seats,
            arguments.seed,
            rules=rules,
            on_finished=bar.update,
        )
    wins, draws = int(played.won.sum()), int(played.drawn.sum())
    losses, mean_turns = num_games - wins - draws, float(played.turns_alive.mean())
    score = (wins + draws / 2) / num_games
    low, high = wilson_interval(score, num_games)
    text = (
        f"{arguments.policy} against {', '.join(opponents)}: {plural(num_games, 'game')}: "
        f"{wins} won, {draws} drawn, {losses} lost; score {score:.1%} "
        f"(95% confidence interval {low:.1%} to {high:.1%}); survived {mean_turns:.1f} turns on "
        "average"
    )
    return text, {
        "wins": wins,
        "draws": draws,
        "losses": losses,
        "mean_turns": mean_turns,
        "score": round(score, 4),
        "ci_low": round(low, 4),
        "ci_high": round(high, 4),
        "opponents": opponents,
    }


def _progress_bar(num_games: int) -> tqdm[Any]:
    """Return a progress bar for games."""
    return tqdm(total=num_games, desc="games", unit="game", disable=None)


def _place_on_ladder(
    policy: tuple[ScoreFn, dict[str, Any]],
    rules: Sequence[PipelineStep],
    arguments: argparse.Namespace,
) -> tuple[str, dict[str, Any]]:
    """Play about ``--games`` duels against the most informative rungs of the ladder.

    Returns:
        The result as text, and its figures for ``--json``.
    """
    with _progress_bar(arguments.games) as bar:

        def show_placement(placement: Placement) -> None:
            """Show the current placement in the progress bar."""
            bar.update(placement.games - bar.n)
            bar.set_postfix_str(str(placement))

        placement, _ = ladder_evaluator.place_policy(
            *policy,
            seed=arguments.seed,
            games=arguments.games,
            half_width_elo=0.0,
            rules=rules,
            on_batch=show_placement,
        )
    return placement.rung_table(), placement.to_dict()


def parser() -> Parser:
    """Return the parser for ``battlesnake-gym evaluate``."""
    parser = Parser(
        prog="battlesnake-gym evaluate",
        description="Play a policy greedily, with the rules and the action mask of its training. "
        "Without --opponents, plays duels against the rungs of the ladder and prints the Elo and "
        "the scores. With --opponents, all opponents play in every game, and the command prints "
        "the policy's score. A draw counts half a point.",
    )
    add = parser.add_argument
    add("policy", help="run, checkpoint or policy.onnx; a run or checkpoint plays with its "
        "highest-Elo weights")  # fmt: skip
    add("--opponents", help="built-in snakes that play in every game, comma-separated")
    add("--policy-rules", metavar="FILE",
        help="Python file with rules applied to the policy's values (see serve --policy-rules)",
    )  # fmt: skip
    add("--games", type=positive, default=_DEFAULT_NUM_GAMES, help="number of games")
    add("--seed", type=seed, default=0, help="random seed for start positions, seats and opponents")
    add_json_option(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run ``battlesnake-gym evaluate`` and return the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    opponents = [name for name in (arguments.opponents or "").split(",") if name]
    if arguments.opponents is not None and not opponents:
        options.error("--opponents contains no name; try --opponents hungry,cautious")
    if PAST_SELF in opponents:
        options.error(f"--opponents: {PAST_SELF} plays only in training; use a policy file")
    try:
        policy = SnakeSpec.parse(arguments.policy)
        if policy.is_uri:
            raise ValueError(f"{policy} is a URL; give a run, a checkpoint or a .onnx file")
        if policy.nodes is not None:
            raise ValueError(f"@{policy.nodes} has no effect on a policy; omit @{policy.nodes}")
        if arguments.policy_rules and policy.rules:
            raise ValueError(
                f"give either --policy-rules {arguments.policy_rules} or +{policy.rules}"
            )
        loaded = load_score_fn(policy.path)
        rules_file = arguments.policy_rules or policy.rules
        rules = policy_rules.load(rules_file) if rules_file else ()
        if opponents:
            text, figures = _play_against(loaded, rules, opponents, arguments)
        else:
            text, figures = _place_on_ladder(loaded, rules, arguments)
    except (ValueError, OSError) as error:
        options.error(str(error))
    figures = {"policy": str(arguments.policy), **figures}
    if arguments.json:
        print_json(figures)
    else:
        sys.stdout.write(text + "\n")
    return 0
