"""Complete games of a policy, played in parallel.

The opponents are built-in snakes or ladder rungs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.seat_memory import ScoreFn, SeatMemory
from battlesnake_gym.env.seated_opponents import SeatedOpponents
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.rules import MOVES, State, start
from battlesnake_heuristics.rating.match import DUEL, derive_seed
from battlesnake_heuristics.rating.sprt import pair_outcome
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.pipeline import PipelineStep
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import env_options

_SNAKE_IDS = "0", "1"
"""IDs of the snakes in a duel, ordered by seat."""


@dataclass(frozen=True, slots=True)
class _GameOutcomes:
    """Outcomes of N games, from the perspective of the policy's snake.

    Attributes:
        won: bool (N,), whether the snake won.
        drawn: bool (N,), whether the game was a draw.
        turns_alive: float64 (N,), number of turns that the snake survived.
    """

    won: NDArray[np.bool_]
    drawn: NDArray[np.bool_]
    turns_alive: NDArray[np.float64]


def play_games_batched(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    opponents: Sequence[Sequence[str]],
    own_seats: NDArray[np.integer[Any]],
    seed: int,
    *,
    starts: Sequence[State] = (),
    rules: Sequence[PipelineStep] = (),
    on_finished: Callable[[int], object] = lambda games: None,
) -> _GameOutcomes:
    """Play N games in parallel, each until the policy's snake is eliminated or alone.

    The policy plays greedily under the games' action mask.

    Args:
        values: Score function of the policy.
        env_config: Options of the games.
        opponents: Names of the built-in snakes in the other seats of each game; all games have the
            same number of opponents.
        own_seats: int (N,), seat of the policy in each game.
        seed: Random seed of start positions, food and opponents.
        starts: Start position of each game; empty for random positions.
        rules: Policy rules that choose the move
            (`battlesnake_heuristics.rule_based.policy_rules`).
        on_finished: Callback with the number of games that have just finished.
    """
    games, seats = len(opponents), len(opponents[0]) + 1
    # Training may use other opponents and other start positions.
    others = {
        "num_snakes": seats,
        "rewards": EnvConfig.rewards,
        "start_positions": None,
        "food_positions": None,
    }
    vector = make_vector_env(games, {**env_config, **others})
    random = np.random.default_rng(seed)
    seated, memory = SeatedOpponents(vector), SeatMemory(vector)
    sightings = [Sightings() for _ in range(games)]
    for game, names in enumerate(opponents):
        for seat, name in zip(np.delete(np.arange(seats), own_seats[game]), names, strict=True):
            seated.assign(game, int(seat), name, int(random.integers(2**31)))
    observations, infos = vector.reset(
        seed=int(random.integers(2**31)), options={"states": starts} if starts else None
    )
    all_games = np.arange(games)
    playing = np.ones(games, dtype=np.bool_)
    played = _GameOutcomes(np.zeros(games, np.bool_), np.zeros(games, np.bool_), np.zeros(games))
    while playing.any():
        in_play = np.flatnonzero(playing)
        own = in_play, own_seats[in_play]
        actions = np.zeros((games, seats), dtype=np.uint8)
        q_values = memory.call(values, own, observations[own])
        actions[own] = np.where(infos["action_mask"][own], q_values, -np.inf).argmax(-1)
        if rules:
            for game, scores in zip(in_play.tolist(), q_values, strict=True):
                own_seat = int(own_seats[game])
                actions[game, own_seat] = _apply_policy_rules(
                    vector, game, own_seat, scores, rules, sightings[game]
                )
        seated.move(actions, infos["alive"] & playing[:, None])
        observations, _, _, truncations, infos = vector.step(actions)
        played.turns_alive[playing] = infos["turn"][playing]
        survived = infos["cause"][all_games, own_seats] == 0
        cut = truncations[all_games, own_seats]  # False if the policy's snake is eliminated.
        opponents_alive = infos["cause"] == 0
        opponents_alive[all_games, own_seats] = False
        # Some rulesets continue a game in which only the policy's snake is alive.
        over = vector.games.over | ~opponents_alive.any(-1)
        ended = playing & (over | cut | ~survived)
        played.won[ended] = (survived & ~cut)[ended]
        all_eliminated = np.logical_and.reduce(infos["cause"] > 0, axis=-1)
        played.drawn[ended] = np.logical_or(all_eliminated, cut)[ended]
        playing &= ~ended
        on_finished(int(ended.sum()))
    return played


def _apply_policy_rules(
    vector: VectorBattlesnake,
    game: int,
    seat: int,
    scores: NDArray[np.float32],
    rules: Sequence[PipelineStep],
    sightings: Sightings,
) -> int:
    """Return the index of the action that the policy rules choose for one snake."""
    board = Board.from_state(vector.games.state(game), vector.game)
    board.you_id = board.snakes[seat].id
    filters = policy_rules.policy_filters(vector.action_mask_kind)
    facing = np.full(len(MOVES), vector.games.facing[game, seat])
    moves = [MOVES[a] for a in vector.observation.absolute_actions(np.arange(len(MOVES)), facing)]
    values = dict(zip(moves, scores.tolist(), strict=True))
    with snakes.named_errors("the policy with these rules"):
        return moves.index(
            policy_rules.apply_policy_rules(values, board.limited(), rules, filters, sightings).move
        )


def play_pairs(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    rungs: Sequence[str],
    seed: int,
    first_pair: int = 0,
    rules: Sequence[PipelineStep] = (),
) -> list[int]:
    """Play duels against ``rungs``, with one game pair per entry of the list.

    All games run in parallel, with the rules, the board and the action mask of ``env_config``.

    Args:
        values: Score function of the policy.
        env_config: Options of the games.
        rungs: Name of the opponent in each pair.
        seed: Random seed of the start positions.
        first_pair: Index of the first pair, which determines the start position.
        rules: Policy rules that choose the move.

    Returns:
        Outcome of each pair: an index in `sprt.PAIR_SCORES`.
    """
    games: Any = env_options(env_config)
    seeds = (derive_seed(seed, first_pair + pair) for pair in range(len(rungs)))
    starts = [
        start(replace(games.game, seed=one), games.width, games.height, _SNAKE_IDS) for one in seeds
    ]
    played = play_games_batched(
        values,
        {**env_config, "max_turns": DUEL.max_turns},
        [(rung,) for rung in rungs for _ in _SNAKE_IDS],
        np.tile([0, 1], len(rungs)),
        derive_seed(seed, first_pair),
        starts=[position for position in starts for _ in _SNAKE_IDS],
        rules=rules,
    )
    points = (played.won + played.drawn / 2).reshape(-1, 2).sum(-1)
    return [pair_outcome(float(sum_of_two)) for sum_of_two in points]
