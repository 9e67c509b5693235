"""Battlesnake for verifiers: a language model duels a built-in snake.

A task is a seed, and its prompt is the first position. The environment responds to each move with
the next position. At the end of the game, the reward is 1 for a win, 0.5 for a draw and 0 for a
loss.
"""

import re
from collections.abc import Iterator

import verifiers.v1 as vf

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game

__all__ = ["DuelConfig", "DuelEnv", "DuelTask", "DuelTaskset"]

SYSTEM_PROMPT = (
    "You play Battlesnake as A against B. A and B are heads; arrows are bodies, and each points to "
    "the next cell towards the head; stars are food. Stay on the board, off bodies, fed, and away "
    "from where B's head may go unless you are longer. Think, then end with one word: up, down, "
    "left or right."
)
REFERENCE_SNAKE = "champion@100"
"""Snake that must win the game in `DuelTask.validate`."""


class Duel:
    """A duel on an 11x11 board, in which the language model plays snake A.

    Equal seeds and equal moves produce equal games.
    """

    def __init__(self, seed: int, opponent: str) -> None:
        self.board = Board.new(11, 11, ["A", "B"], game=Game(seed=seed))
        self.board.you_id = "A"
        self._opponent = snakes.make(opponent, seed)

    def play(self, move: str) -> None:
        """Play one turn with ``move`` as the move of snake A."""
        decided = snakes.decide(self.board, {"B": self._opponent})
        self.board.step({"A": move, "B": decided["B"].move})
        self.board.you_id = "A"

    @property
    def board_text(self) -> str:
        """The position as text.

        The text omits the seed, because the seed determines the food.
        """
        return str(self.board.without_seed())

    @property
    def points(self) -> float:
        """Points of snake A in a finished game: 1, 0.5 or 0."""
        living = [snake.id for snake in self.board.living]
        return {("A",): 1.0, (): 0.5}.get(tuple(living), 0.0)


class DuelData(vf.TaskData):
    """Data of one task: the opponent's name and the seed of the game."""

    opponent: str
    seed: int


class DuelTask(vf.Task[DuelData]):
    """A task: one duel in `DuelEnv`."""

    @vf.reward(weight=1.0)
    async def points(self, trace: vf.Trace) -> float:
        """Return the points of the model in the game, or 0 if no game was played."""
        return float(trace.info.get("points", 0.0))

    async def validate(self, runtime: object) -> bool:
        """Return whether `REFERENCE_SNAKE` wins the game of the task."""
        duel, gold = Duel(self.data.seed, self.data.opponent), snakes.make(REFERENCE_SNAKE)
        while not duel.board.is_over():
            duel.play(gold(duel.board).move)
        return duel.points == 1.0


class DuelConfig(vf.TasksetConfig):
    """Settings of the games of a task set."""

    opponent: str = "hungry"
    """Name of the opponent, as listed by `battlesnake-gym snakes`.

    The order of strength is random, hungry, cautious, hunter.
    """
    games: int = 20


class DuelTaskset(vf.Taskset[DuelTask, DuelConfig]):
    """A set of tasks with one game per seed."""

    def load(self) -> Iterator[DuelTask]:
        """Yield one task per seed."""
        for seed in range(1, self.config.games + 1):
            start = Duel(seed, self.config.opponent)
            yield DuelTask(
                DuelData(
                    name=f"{self.config.opponent}#{seed}",
                    prompt=start.board_text,
                    system_prompt=SYSTEM_PROMPT,
                    opponent=self.config.opponent,
                    seed=seed,
                ),
                self.config.task,
            )


class DuelEnvConfig(vf.EnvConfig):
    """Settings of the agent that plays snake A."""

    player: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class DuelEnv(vf.Env[DuelEnvConfig]):
    """Environment that responds to the moves of the model with positions."""

    async def run(self, task: DuelTask, agents: vf.Agents) -> None:
        """Play the duel of a task until the end.

        The model loses if a reply contains no move.
        """
        duel, points = Duel(task.data.seed, task.data.opponent), 0.0
        async with agents.player.interaction(task) as interaction:
            segment = await interaction.turn()
            while not segment.terminated:
                words = re.findall(
                    r"\b(?:{})\b".format("|".join(MOVES)), segment.last_reply.lower()
                )
                if not words:
                    break
                duel.play(words[-1])
                if duel.board.is_over():
                    points = duel.points
                    break
                segment = await interaction.turn(duel.board_text)
            interaction.trace.info["points"] = (
                points  # The points must be set before the scoring at the end of the block.
            )
        interaction.trace.record_metric("turns", float(duel.board.turn))
