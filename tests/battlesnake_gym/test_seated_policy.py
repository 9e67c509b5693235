"""Policies and past selves as opponents: observations, moves and rejected input."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from battlesnake_gym import BattlesnakeEnv, VectorBattlesnake, parallel_env, snakes
from battlesnake_gym.env.seated_opponents import SeatedOpponents
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv, win_rate
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.rules import MOVES
from tests.battlesnake_gym.test_vector import choose

pytest.importorskip("onnxruntime", reason="needs the extra server")


LEFT = MOVES.index("left")


@pytest.fixture
def left(tmp_path: Path) -> str:
    """The file of a policy that prefers "left"."""
    pytest.importorskip("onnx", reason="needs the extra rllib")
    from tests.server.conftest import write_policy

    return str(write_policy(tmp_path / "model", (0.0, 1.0, 9.0, 2.0), [(7, 7)]))


def last_allowed(seen: NDArray[np.uint8], mask: NDArray[np.bool_]) -> NDArray[np.intp]:
    """A policy that can be pickled: it chooses the last allowed action."""
    assert seen.shape[1:] == (10, 7, 7)
    moves: NDArray[np.intp] = 3 - mask[:, ::-1].argmax(1)
    return moves


def test_other_observations_of_the_same_games_are_kept_up_to_date() -> None:
    other = observations.Observation("centered", 3)
    games = VectorBattlesnake(30, num_snakes=3, width=7, height=7, max_turns=20)
    shown = VectorBattlesnake(30, 3, 7, 7, max_turns=20, observation=other)
    shape = other.shape(7, 7)
    random = np.random.default_rng(0)
    _, infos = games.reset(seed=1)
    games.observe_as(other, shape)
    shown.reset(seed=1)
    for turn in range(60):
        if turn == 30:
            games = pickle.loads(pickle.dumps(games))
        np.testing.assert_array_equal(games.observe_as(other, shape), shown.observations)
        actions = choose(infos, random)
        *_, infos = games.step(actions)
        shown.step(actions)


@pytest.mark.parametrize("observation", ["planes", "facing"])
def test_a_policy_gets_its_own_observation_and_plays_its_best_move(observation: str) -> None:
    games = VectorBattlesnake(12, num_snakes=2, observation=observation)
    policy = snakes.batch_policy("shipped")
    assert policy is not None
    opponents, random = SeatedOpponents(games), np.random.default_rng(0)
    _, infos = games.reset(seed=3)
    for game in range(12):
        opponents.assign(game, 1, "shipped", seed=0)
    for _ in range(15):
        alive = infos["alive"]
        actions = choose(infos, random).astype(np.uint8)
        opponents.move(actions, alive)
        for game in np.flatnonzero(alive[:, 1]).tolist():
            state = games.games.state(game)
            seen = observations.get("territory").encode(state, "snake_1")
            mask = masks.action_mask(games.game, state, "snake_1", "fatal+head")
            scores, _ = policy.step(seen[None], np.zeros((1, 0), np.float32))
            move = int(np.where(mask, scores[0], -np.inf).argmax())
            facing = games.games.facing[game, 1]
            turn = games.observation.absolute_actions(actions[game, 1], facing)
            assert (turn if observation == "facing" else actions[game, 1]) == move
        *_, infos = games.step(actions)


@pytest.mark.parametrize("form", ["copy", "pickle"])
def test_copies_continue_the_same_games(form: str, tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text("from battlesnake_heuristics.rule_based.filters import walls\nrules = [walls]")
    opponents = ["shipped", f"shipped+{rules}", "past", "hungry"]
    envs = BattlesnakeVectorEnv(6, opponents, width=7, height=7)
    envs.add_past_self(last_allowed)
    random = np.random.default_rng(0)
    _, infos = envs.reset(seed=6)
    for _ in range(5):
        *_, infos = envs.step(choose(infos, random))
    other = copy.deepcopy(envs) if form == "copy" else pickle.loads(pickle.dumps(envs))
    for _ in range(25):
        actions = choose(infos, random)
        seen, *_, infos = envs.step(actions)
        np.testing.assert_array_equal(seen, other.step(actions)[0])


def test_past_plays_past_selves_in_games_that_start_later() -> None:
    opponents = SeatedOpponents(games := VectorBattlesnake(9, 2, 7, 7, max_turns=3))
    _, infos = games.reset(seed=1)
    for remembered in (False, True):
        opponents.remove_opponents(np.ones(9, np.bool_))
        if remembered:
            opponents.add_past_self(last_allowed)
        for game in range(9):
            opponents.assign(game, 1, "past", seed=game)
        actions = np.full((9, 2), 9, np.uint8)
        opponents.move(actions, infos["alive"])
        last = last_allowed(games.observations[:, 1], infos["action_mask"][:, 1])
        assert (actions[:, 1] == last).all() == remembered
        assert (actions[:, 0] == 9).all()
    options: dict[str, Any] = {"width": 7, "height": 7, "games": 40, "past_self": last_allowed}
    first = win_rate(last_allowed, ["past"], **options)
    assert 0 < first < 1  # Each side wins some games.
    assert win_rate(last_allowed, ["past"], autoreset_mode="SameStep", **options) == first


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "single", "pettingzoo"])
def test_environments_record_results_against_past_selves(mode: str) -> None:
    size: dict[str, Any] = {"width": 7, "height": 7, "action_mask": "none"}
    if mode == "pettingzoo":
        agents = parallel_env(2, opponents=["past"], **size)
        past = agents._game.seated_opponents._past_selves
        agents.add_past_self(last_allowed)
        for seed in range(5):
            agents.reset(seed=seed)
            while agents.agents:
                agents.step({"snake_0": 0})
    elif mode == "single":
        env = BattlesnakeEnv(["past"], **size)
        past = env._game.seated_opponents._past_selves
        env.add_past_self(last_allowed)
        for seed in range(5):
            env.reset(seed=seed)
            while not any(env.step(0)[2:4]):
                pass
    else:
        envs = BattlesnakeVectorEnv(5, ["past"], autoreset_mode=AutoresetMode[mode], **size)
        past = envs._seated_opponents._past_selves
        envs.add_past_self(last_allowed)
        envs.reset(seed=1)
        for _ in range(40):
            envs.step(np.zeros(5, np.int64))
    state = past.get_state()
    assert state["num_results"][0] > 4
    assert 0 <= state["wins"][0] < state["num_results"][0] < 60
    # Without eliminations, every game would be a draw.
    assert 2 * state["wins"][0] != pytest.approx(state["num_results"][0])


def test_single_and_pettingzoo_environments_have_policies_too(left: str) -> None:
    env = BattlesnakeEnv([left, "past"], 7, 7)
    env.add_past_self(last_allowed)
    agents = parallel_env(3, opponents=[left, "hungry"], width=7, height=7)
    lefts = 0
    for seed in range(5):
        _, info = env.reset(seed=seed)
        env.step(int(info["action_mask"].argmax()))
        _, infos = agents.reset(seed=seed)
        assert agents.agents == ["snake_0"]
        while agents.agents:
            (x, _), may = agents.board.snakes[1].head, agents._game.infos["action_mask"][0, 1, LEFT]
            lives = agents.board.snakes[1].alive
            *_, infos = agents.step({"snake_0": int(infos["snake_0"]["action_mask"].argmax())})
            if lives and may:
                assert agents.board.snakes[1].head[0] == x - 1
                lefts += 1
    assert lefts > 5
    with pytest.raises(ValueError, match="seat"):
        parallel_env(2, 7, 7, opponents=[left, "hungry"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"opponents": ["nowhere.onnx"]}, r"nowhere.onnx"),
        ({"opponents": ["runs/nowhere"]}, r"'runs/nowhere'.* .onnx"),
        ({"opponents": ["."]}, r"policy.onnx"),
        ({"opponents": ["shipped"], "width": 9}, r"7x7.* 11x11.* 19x19.* 9x11"),
    ],
)
def test_unsuitable_opponents_are_rejected_by_name(
    options: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=words):
        BattlesnakeVectorEnv(2, **options)
    with pytest.raises(ValueError, match="'past'"):
        BattlesnakeVectorEnv(2, ["hungry"]).add_past_self(last_allowed)


@pytest.mark.parametrize("form", ["run", "file", "bundle"])
def test_a_file_a_run_and_a_bundle_of_a_policy_alone_are_policies(left: str, form: str) -> None:
    from battlesnake_server import bundle

    path = Path(left)
    packed = path.with_name("snake.zip")
    facts: dict[str, Any] = {"snake": None, "filters": [], "nodes": None, "customization": {}}
    files = {one: path.with_name(one).read_bytes() for one in ("policy.onnx", "policy.json")}
    packed.write_bytes(bundle.to_bytes(facts, files))
    name = {"run": path.parents[1], "file": path, "bundle": packed}[form]
    opponents = SeatedOpponents(games := VectorBattlesnake(5, 2, 7, 7))
    _, infos = games.reset(seed=1)
    assert opponents.seated_policy(str(name))
    for game in range(5):
        opponents.assign(game, 1, str(name), seed=0)
    actions = np.zeros((5, 2), np.uint8)
    opponents.move(actions, infos["alive"])
    may = infos["action_mask"][:, 1, LEFT]
    assert may.any()
    assert (actions[may, 1] == LEFT).all()
