"""Recorded games to learn from: the winners' moves, as the environment would have shown them."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs the extra rllib")

from battlesnake_gym.boards.board import Board
from battlesnake_gym.records.replay import Replay
from battlesnake_gym.rules import MOVES, Game
from battlesnake_gym.see import observations
from battlesnake_rl.mabs.dqn import recorded
from battlesnake_rl.mabs.play.environment import DEFAULTS
from tests.algorithms import built, noted_batches

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

ENV = DEFAULTS | {"num_snakes": 2, "width": 7, "height": 7, "rewards": {"won": 1, "died": -1}}
LEARN: dict[str, Any] = {"n_step": 1, "gamma": 0.9, "reward_scale": 0.5, "seed": 3}


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded games of two snakes that avoid what kills at once."""
    folder = tmp_path_factory.mktemp("games")
    for seed in range(1, 5):
        moves = random.Random(seed)
        game = Replay(Board.new(7, 7, ["one", "two"], game=Game(seed=seed)))
        while len(game.last.living) > 1:
            board = game.last
            game.append(
                {
                    snake.id: moves.choice(board.safe_moves(snake.id) or ["up"])
                    for snake in board.living
                }
            )
        game.save(folder / f"{seed}.jsonl.gz")
    return folder


def winners(folder: Path) -> list[tuple[Replay, str]]:
    played = [Replay.load(path) for path in sorted(folder.iterdir())]
    return [(game, game.last.living[0].id) for game in played if game.last.living]


def test_the_replay_is_what_the_winners_saw_and_did(games: Path) -> None:
    replay = recorded.learn(games, ENV, **LEARN)
    won = winners(games)
    assert won
    state = replay.get_state()
    seen = observations.get("planes")
    row = 0
    for game, winner in won:
        boards = list(game.boards())
        for number, turn in enumerate(game.turns):
            np.testing.assert_array_equal(state["frames"][row], seen.encode(boards[number], winner))
            assert MOVES[state["actions"][row]] == turn.moves[winner]
            last = number == len(game.turns) - 1
            assert state["terminateds"][row] == last
            assert state["rewards"][row] == (0.5 if last else 0.0)
            assert state["n_step"][row] == 1
            row += 1
    assert row == len(replay)


def test_what_cannot_be_learned_from_is_refused(games: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="2 snakes on 7x7, but training is for 2 on 11x11; give"):
        recorded.learn(games, ENV | {"width": 11, "height": 11}, **LEARN)
    with pytest.raises(ValueError, match="there is no recorded game in"):
        recorded.learn(tmp_path, ENV, **LEARN)
    with pytest.raises(ValueError, match="there is no folder"):
        recorded.learn(tmp_path / "none", ENV, **LEARN)
    drawn = Replay(Board.from_text("A . B"))
    drawn.append({"a": "right", "b": "left"})
    drawn.save(tmp_path / "drawn.jsonl")
    with pytest.raises(ValueError, match="no snake has won any of the games"):
        recorded.learn(tmp_path, ENV, **LEARN)
    with pytest.raises(ValueError, match="needs observations of one position"):
        recorded.check(ENV | {"observation": {"name": "planes", "frames": 2}})


def test_dqn_learns_from_them_beside_its_own(small_config: Any, games: Path) -> None:
    config = small_config("DQN", width=7, height=7)
    config.training(demonstrations={"games": str(games), "share": 0.25})
    with built(config) as algorithm:
        seen = noted_batches(algorithm)
        algorithm.train()
        assert all(columns["demonstrated"].mean() == pytest.approx(0.25, abs=0.02)
                   for columns in seen)  # fmt: skip
        assert seen
