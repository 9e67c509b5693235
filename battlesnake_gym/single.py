"""The Gymnasium environment ``battlesnake_gym:Battlesnake-v0``: one learner against named snakes.

>>> import gymnasium
>>> env = gymnasium.make("battlesnake_gym:Battlesnake-v0", opponents=[], width=7, height=7)
>>> observation, info = env.reset(seed=1)
>>> observation.shape, info["board"].you.id
((10, 7, 7), 'snake_0')
>>> observation, reward, terminated, truncated, info = env.step(info["action_mask"].argmax())
>>> info["board"].turn
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from battlesnake_gym import snakes
from battlesnake_gym.board import Board
from battlesnake_gym.nearest import unknown
from battlesnake_gym.observations import Observation
from battlesnake_gym.one_game import RENDER_FPS, RENDER_MODES, Frame, OneGame, action_index
from battlesnake_gym.rewards import Rewards
from battlesnake_gym.rules import MOVES, Settings, State
from battlesnake_gym.snakes import Strategy

Opponent = str | Strategy
"""A name that `snakes.make` knows (built afresh for every game), or a strategy (kept)."""


class BattlesnakeEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """One learner on a board with opponents that play by themselves.

    ``opponents``: who else plays. Without ``num_snakes`` all of them do; with it, each game draws
    ``num_snakes - 1`` from them (the same one may be drawn twice). Seats, the learner's too, are
    dealt anew for each game. Strategies are given the board without the seed, and no time limit.

    ``ruleset``, ``map``, ``settings`` (names of `rules.Settings`) say what is played; ``width`` and
    ``height`` 1 to 25; ``observation``, ``rewards``, ``action_mask`` and ``max_turns`` as in
    `VectorBattlesnake`. With no opponents the game is ``solo``.

    An episode ends (``terminated``) when the learner's snake is out or the game is over.

    ``info``: ``action_mask`` int8 [4], 1 for allowed; ``board``, the `Board` with the learner as
    ``you``; ``seat``; ``seed``, that of the game, which the learner is not meant to look into;
    ``cause``, why the learner is out (one of `rules.CAUSES`, ``""`` while it lives).

    ``render_mode``: "ansi" (text), "rgb_array" (uint8 [height, width, 3]), "human" (each position
    is written to the terminal). Raises ``ValueError`` for arguments out of range.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": RENDER_FPS}  # noqa: RUF012

    def __init__(
        self,
        opponents: Sequence[Opponent] = ("hungry",),
        width: int = 11,
        height: int = 11,
        *,
        num_snakes: int | None = None,
        ruleset: str = "standard",
        map: str = "standard",
        settings: Settings | Mapping[str, int] | None = None,
        observation: str | Mapping[str, Any] | Observation = "planes",
        rewards: str | Mapping[str, float] | Rewards = "survival",
        action_mask: str = "forbidden",
        max_turns: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.opponents = _check_opponents(opponents)
        if num_snakes is None:
            num_snakes = len(self.opponents) + 1
            self._draw = False
        else:
            if num_snakes > 1 and not self.opponents:
                raise ValueError(f"opponents is empty, so num_snakes must be 1, got {num_snakes}")
            self._draw = True
        self._game = OneGame(
            num_snakes,
            width,
            height,
            ruleset=ruleset,
            map=map,
            settings=settings,
            observation=observation,
            rewards=rewards,
            action_mask=action_mask,
            max_turns=max_turns,
            render_mode=render_mode,
        )
        self.render_mode = render_mode
        self.observation = self._game.vector.observation
        self.observation_space = self._game.vector.single_observation_space
        self.action_space = Discrete(len(MOVES))
        self.seat = 0
        self._strategies: dict[int, Strategy] = {}

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Begin a game; returns the learner's observation and info.

        ``seed`` decides this game and those that follow. ``options={"states": [...]}`` draws the
        start from these positions (`State`, `Board` or the JSON of the API's /move); the learner
        plays the board's ``you`` where it has a living one. The option holds for this game only.
        """
        super().reset(seed=seed)
        self._deal(self._game.reset(self.np_random, options or {}))
        return self._view()

    def step(
        self, action: int | np.integer[Any]
    ) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Play one turn: the learner takes ``action`` (index into `rules.MOVES`), opponents think.

        Raises ``ValueError`` for any other action, ``ResetNeeded`` where no game is running,
        ``ClosedEnvironmentError`` after `close`.
        """
        self._game.check_playing(self.seat)
        actions = np.zeros(self._game.vector.num_snakes, np.uint8)
        actions[self.seat] = action_index(action, "action")
        for seat, strategy in self._strategies.items():
            if self._game.infos["alive"][0, seat]:
                move = _answer(strategy, self._game.board(seat))
                actions[seat] = self._game.action(seat, move)
        self._game.step(actions)
        reward = float(self._game.rewards[0, self.seat])
        terminated = bool(self._game.terminations[0, self.seat])
        truncated = bool(self._game.truncations[0, self.seat])
        observation, info = self._view()
        return observation, reward, terminated, truncated, info

    def render(self) -> str | Frame | None:  # type: ignore[override]
        """The position in the form of ``render_mode``."""
        return self._game.render(self._game.board(self.seat))

    def close(self) -> None:
        """Refuse further work; closing twice does no harm."""
        self._game.vector.close()

    def _deal(self, start: State | None) -> None:
        """Seat the learner and its opponents on the snakes that are alive."""
        living = np.flatnonzero(self._game.infos["alive"][0]).tolist()
        you = start.you_id if isinstance(start, Board) else None
        ids = [] if start is None else [snake.id for snake in start.snakes]
        if you in ids and ids.index(you) in living:
            self.seat = ids.index(you)
        else:
            self.seat = int(self.np_random.choice(living))
        living.remove(self.seat)
        self._strategies = {}
        for seat, opponent in zip(living, self._draw_opponents(), strict=False):
            seed = int(self.np_random.integers(2**31))
            strategy = snakes.make(opponent, seed) if isinstance(opponent, str) else opponent
            self._strategies[seat] = strategy

    def _draw_opponents(self) -> list[Opponent]:
        if not self.opponents:
            return []
        count = len(self.opponents)
        drawn = (
            self.np_random.integers(count, size=self._game.vector.num_snakes - 1)
            if self._draw
            else self.np_random.permutation(count)
        )
        return [self.opponents[i] for i in drawn]

    def _view(self) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """What the learner is given after a reset or step; a person who watches is shown it too."""
        board = self._game.board(self.seat)
        if self.render_mode == "human":
            self._game.render(board)
        return self._game.observation(self.seat), {
            "action_mask": self._game.mask(self.seat),
            "board": board,
            "seat": self.seat,
            "seed": int(self._game.infos["seed"][0]),
            "cause": self._game.cause(self.seat),
        }


def _answer(strategy: Strategy, board: Board) -> str:
    move = strategy(board).move
    if move not in MOVES:
        raise ValueError(
            f"opponent {strategy!r} answered {move!r}; a move is one of {', '.join(MOVES)}"
        )
    return move


def _check_opponents(opponents: Sequence[Opponent]) -> tuple[Opponent, ...]:
    if isinstance(opponents, str) or not isinstance(opponents, Sequence):
        raise ValueError(f"opponents must be a list of names or strategies, got {opponents!r}")
    for opponent in opponents:
        if isinstance(opponent, str):
            if opponent not in snakes.names():
                raise ValueError(f"opponents: {unknown('snake', opponent, snakes.names())}")
        elif not callable(opponent):
            raise ValueError(
                f"opponents must be names or strategies (callables that take a board), "
                f"got {opponent!r}"
            )
    return tuple(opponents)
