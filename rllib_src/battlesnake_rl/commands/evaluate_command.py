"""``battlesnake-gym evaluate``: a policy on the ladder, or at a table with named snakes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.common.command_line import Parser, add_json, positive, seed, write_json
from battlesnake_heuristics.rating.ladder import Placement
from battlesnake_heuristics.rating.sprt import wilson_interval
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.pipeline import PipelineStep
from battlesnake_rl.mabs.policy.policy_loader import ScoreFn, load_score_fn
from battlesnake_rl.mabs.strength import batched_games, ladder_evaluator

_DEFAULT_GAMES = 200


@dataclass(frozen=True, slots=True)
class Results:
    """What came of a number of games, as the policy's snake sees it."""

    wins: int
    draws: int
    losses: int
    mean_turns: float
    """How long its snake lived, in turns."""

    @property
    def games(self) -> int:
        """All games played."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Wins per game."""
        return self.wins / self.games

    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % confidence interval of the win rate.

        >>> low, high = Results(wins=50, draws=0, losses=50, mean_turns=1.0).interval()
        >>> round(low, 3), round(high, 3)
        (0.404, 0.596)
        """
        return wilson_interval(self.win_rate, self.games)

    def as_json(self) -> dict[str, Any]:
        """The figures, for ``--json``."""
        low, high = (round(end, 4) for end in self.interval())
        return asdict(self) | {"win_rate": round(self.win_rate, 4), "low": low, "high": high}

    def __str__(self) -> str:
        low, high = self.interval()
        return (
            f"{self.games} games: {self.wins} won, {self.draws} drawn, {self.losses} lost; "
            f"win rate {self.win_rate:.1%} (95 % interval {low:.1%} to {high:.1%}); "
            f"lived {self.mean_turns:.1f} turns on average"
        )


def play(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    opponents: Sequence[str],
    games: int,
    seed: int,
    rules: Sequence[PipelineStep] = (),
) -> Results:
    """Play ``games`` games, all at once, the policy's snake in a seat drawn for each game."""
    own = np.random.default_rng(seed).integers(len(opponents) + 1, size=games)
    with tqdm(total=games, desc="games", unit="game", disable=None) as bar:

        def count(ended: int) -> None:
            bar.update(ended)

        played = batched_games.play_games_batched(
            values, env_config, [opponents] * games, own, seed, rules=rules, tell=count
        )
    wins, draws = int(played.won.sum()), int(played.drawn.sum())
    return Results(wins, draws, games - wins - draws, float(played.turns_alive.mean()))


def place(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    games: int,
    seed: int,
    rules: Sequence[PipelineStep] = (),
) -> Placement:
    """Play about ``games`` duels against the rungs of the ladder that say the most."""
    with tqdm(total=games, desc="games", unit="game", disable=None) as bar:

        def tell(placement: Placement) -> None:
            bar.update(placement.games - bar.n)
            bar.set_postfix_str(str(placement))

        placement, _ = ladder_evaluator.place_policy(
            values, env_config, seed=seed, games=games, interval=0.0, rules=rules, tell=tell
        )
    return placement


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym evaluate",
        description="Play a policy, greedily, by the rules and with the action mask that it was "
        "trained with. Without --opponents: duels against the rungs of the ladder; prints its Elo "
        "and win rates. With them: games against all of them at once; prints its win rate.",
    )
    add = parser.add_argument
    add("policy", type=Path, help="a run, a checkpoint (their strongest), or a policy.onnx")
    add("--opponents", help="named snakes at one table with it, separated by commas")
    add(
        "--rules",
        metavar="FILE",
        help="a Python file with a list called rules, of filters, preferences and trees over the "
        "policy's values, as serve takes it",
    )
    add("--games", type=positive, default=_DEFAULT_GAMES, help="how many")
    add("--seed", type=seed, default=0, help="of games, seats and opponents")
    add_json(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """``battlesnake-gym evaluate``."""
    options = parser()
    arguments = options.parse_args(argv)
    opponents = [name for name in (arguments.opponents or "").split(",") if name]
    for name in opponents:
        try:
            snakes.make(name)
        except ValueError as error:
            options.error(f"--opponents: {error}")
    if arguments.opponents is not None and not opponents:
        options.error("--opponents is empty; try --opponents hungry,cautious")
    try:
        values, env_config = load_score_fn(arguments.policy)
        rules = policy_rules.load(arguments.rules) if arguments.rules else ()
    except (ValueError, OSError) as error:
        options.error(str(error))
    if opponents:
        results = play(values, env_config, opponents, arguments.games, arguments.seed, rules)
        text = f"{arguments.policy} against {', '.join(opponents)}: {results}"
        figures = results.as_json() | {"opponents": opponents}
    else:
        placement = place(values, env_config, arguments.games, arguments.seed, rules)
        text, figures = ladder_evaluator.rung_table(placement), ladder_evaluator.as_json(placement)
    figures = {"policy": str(arguments.policy), **figures}
    if arguments.json:
        write_json(figures)
    else:
        sys.stdout.write(text + "\n")
    return 0
