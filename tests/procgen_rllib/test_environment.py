"""Observations, rewards, episode ends and reproducibility of the environments."""

import json
import sys
from typing import Any

import numpy as np
import pytest

from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_games import GAMES
from sagemaker_rl.job.pinned_wheels import PROCGEN_ORIGINAL
from tests.procgen_rllib.recording import FRAMES, RECORDED, actions, digests, play

ROLLED = json.loads(RECORDED.read_text())
HASHES = json.loads(FRAMES.read_text())
MISSING = PROCGEN_ORIGINAL.missing_reason()
ORIGINAL = pytest.mark.skipif(bool(MISSING), reason=MISSING or "installed")
PROVIDERS = ("envpool", pytest.param("procgen", marks=ORIGINAL))
SAME_PIXELS = ("bigfish", "chaser", "fruitbot", "leaper", "maze", "miner", "plunder")
"""Games that both packages draw with the same pixels; the others rotate and scale pictures."""
MAX_DIFFERENT_PIXELS = 0.05
"""Share of a frame that may differ in the other games; the largest of 120,000 frames was 0.029."""
WAIT = 4
"""The no-op action."""


def roll(num_envs: int, turns: int, seed: int | None, **env_config: Any) -> dict[str, np.ndarray]:
    """Return all results of random actions, stacked over the turns."""
    games = VectorProcgen(num_envs, env_config)
    draw = np.random.default_rng(5)
    observations, infos = games.reset(seed=seed)
    steps = []
    for _ in range(turns):
        seen = observations
        observations, rewards, terminations, truncations, infos = games.step(
            draw.integers(0, 15, num_envs)
        )
        steps.append((seen, rewards, terminations, truncations, infos["level_seed"]))
    games.close()
    names = ("observations", "rewards", "terminations", "truncations", "level_seed")
    return {
        name: np.stack(part) for name, part in zip(names, zip(*steps, strict=True), strict=True)
    }


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", GAMES)
def test_recorded_rewards(name: str, provider: str) -> None:
    for level, recorded in ROLLED[name].items():
        assert play({"env_name": name, "provider": provider}, int(level)) == recorded
        assert recorded["rewards"] or recorded["ends"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", GAMES)
def test_recorded_frames_of_ten_levels(name: str, provider: str) -> None:
    seen = digests(name, provider)
    assert seen == HASHES[name][provider]
    assert len(set(seen)) == 10


@ORIGINAL
@pytest.mark.parametrize("name", GAMES)
def test_envpool_plays_as_the_original(name: str) -> None:
    """Both packages play the same actions, and every step is compared."""
    for level in (3, 41):
        options = {"env_name": name, "num_levels": 1, "start_level": level}
        ours = VectorProcgen(1, options)
        theirs = VectorProcgen(1, options | {"provider": "procgen"})
        (one, infos), (other, their_infos) = (games.reset(seed=0) for games in (ours, theirs))
        ended = False
        for action in actions(level)[:200]:
            # The original shows no last frame of a level.
            different = 0 if ended else (one != other).any(-1).mean()
            assert different <= (0 if name in SAME_PIXELS else MAX_DIFFERENT_PIXELS)
            one, *results, infos = ours.step(np.array([action]))
            other, *their_results, their_infos = theirs.step(np.array([action]))
            assert results == their_results
            assert infos == their_infos
            ended = any(one[0] for one in results[1:])
        ours.close()
        theirs.close()


@ORIGINAL
def test_games_of_the_original_reset_and_repeat_themselves() -> None:
    options = {"env_name": "bigfish", "provider": "procgen"}
    one, same = (roll(3, 60, 1, **options) for _ in range(2))
    for key in one:
        np.testing.assert_array_equal(one[key], same[key])
    assert len(np.unique(one["level_seed"][0])) == 3
    games = VectorProcgen(2, options)
    _, first = games.reset(seed=3)
    _, second = games.reset()
    assert (first["level_seed"] != second["level_seed"]).all()


def test_a_missing_original_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "procgen", None)
    with pytest.raises(ImportError, match="`make procgen-original`"):
        VectorProcgen(1, {"provider": "procgen"}).reset()
    assert "gym" not in sys.modules


def test_on_how_many_levels_every_pixel_is_the_original_s() -> None:
    # docs/how-to/train-procgen.md contains this number.
    pairs = (zip(game["envpool"], game["procgen"], strict=True) for game in HASHES.values())
    assert sum(ours == theirs for pair in pairs for ours, theirs in pair) == 107


@pytest.mark.parametrize("name", GAMES)
def test_same_seed_same_game(name: str) -> None:
    one, same, other = (roll(3, 60, seed, env_name=name) for seed in (1, 1, 2))
    for key in one:
        np.testing.assert_array_equal(one[key], same[key])
    assert (one["level_seed"] != other["level_seed"]).any()
    assert (one["observations"] != other["observations"]).any()
    assert len(np.unique(one["level_seed"][0])) == 3


def test_a_level_does_not_depend_on_the_seed() -> None:
    one, other = (roll(1, 100, seed, num_levels=1, start_level=9) for seed in (1, 2))
    np.testing.assert_array_equal(one["observations"], other["observations"])
    assert (one["level_seed"] == 9).all()


def test_levels_stay_within_bounds() -> None:
    levels = np.unique(
        roll(4, 300, 1, env_name="bigfish", num_levels=3, start_level=20)["level_seed"]
    )
    assert levels.tolist() == [20, 21, 22]


def test_reset_without_a_seed_goes_on() -> None:
    games = VectorProcgen(2)
    _, first = games.reset(seed=3)
    _, second = games.reset()
    assert (first["level_seed"] != second["level_seed"]).all()
    _, again = games.reset(seed=3)
    np.testing.assert_array_equal(first["level_seed"], again["level_seed"])


@pytest.mark.parametrize(("name", "turns"), [("maze", 500), ("jumper", 1000)])
def test_time_runs_out(name: str, turns: int) -> None:
    games = VectorProcgen(2, {"env_name": name})
    games.reset(seed=1)
    ends = []
    for turn in range(1, 2 * turns + 2):
        _, _, terminations, truncations, _ = games.step(np.full(2, WAIT))
        assert not terminations.any()
        if truncations.any():
            assert truncations.all()
            ends.append(turn)
    # One step in between started the next level.
    assert ends == [turns, 2 * turns + 1]


def test_turns_are_counted_from_the_start_of_each_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 60
    monkeypatch.setitem(GAMES, "bossfight", GAMES["bossfight"]._replace(max_turns=limit))
    played = roll(4, 600, 1, env_name="bossfight")
    ended = played["terminations"] | played["truncations"]
    late = early = 0
    for i in range(4):
        begin = 0
        for turn in np.flatnonzero(ended[:, i]).tolist():
            length = turn + 1 - begin
            assert played["truncations"][turn, i] == (length >= limit)
            late, early = late + (length >= limit), early + (length < limit)
            # One more step starts the next level.
            begin = turn + 2
    assert late > 3
    assert early > 3


def test_last_and_first_frames() -> None:
    level, recorded = next(iter(ROLLED["maze"].items()))
    games = VectorProcgen(1, {"env_name": "maze", "num_levels": 1, "start_level": int(level)})
    first, _ = games.reset(seed=0)
    before, ends = first, 0
    for turn, action in enumerate(actions(int(level))[:100]):
        observations, rewards, terminations, truncations, infos = games.step(np.array([action]))
        began = turn - 1 in recorded["ends"]
        if turn in recorded["ends"]:
            ends += 1
            assert terminations[0]
            assert not truncations[0]
            assert infos["prev_level_complete"][0]
            assert rewards[0] == 10
            # The last frame still shows the previous maze: the player made one step.
            assert (observations != first).any()
            changed = (observations != before).any(-1).mean()
            assert changed < 0.1
        if began:
            assert rewards[0] == 0
            np.testing.assert_array_equal(observations, first)
        before = observations
    assert ends > 5


def test_completing_a_level_in_the_last_turn_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    level, recorded = next(iter(ROLLED["coinrun"].items()))
    turn = recorded["ends"][0]
    limited = GAMES["coinrun"]._replace(max_turns=turn + 1)
    monkeypatch.setitem(GAMES, "coinrun", limited)
    games = VectorProcgen(1, {"num_levels": 1, "start_level": int(level)})
    games.reset(seed=0)
    for action in actions(int(level))[: turn + 1]:
        _, rewards, terminations, truncations, _ = games.step(np.array([action]))
    assert (rewards[0], terminations[0], truncations[0]) == (10, True, False)


def test_sequential_levels() -> None:
    games = VectorProcgen(2, {"use_sequential_levels": True, "num_levels": 1, "start_level": 5})
    _, infos = games.reset(seed=1)
    draw = np.random.default_rng(3)
    levels = infos["level_seed"].tolist()
    highest, lost = 0, 0
    for _ in range(1500):
        _, rewards, terminations, truncations, infos = games.step(
            np.where(draw.random(2) < 0.5, 8, 7)
        )
        for i in range(2):
            if infos["prev_level_complete"][i]:
                assert not terminations[i]
                assert rewards[i] == 10
                levels[i] += 997
            assert infos["level_seed"][i] == levels[i]
            if terminations[i] or truncations[i]:
                lost += 1
                # The step after this one restarts the sequence.
                levels[i] = 5
            highest = max(highest, levels[i])
        if (terminations | truncations).any():
            _, _, ended, cut, infos = games.step(np.full(2, WAIT))
            assert not (ended | cut).any()
    assert lost > 3
    assert highest > 5 + 3 * 997


def test_stacked_frames() -> None:
    plain = roll(2, 120, 4, env_name="bigfish")
    stacked = roll(2, 120, 4, env_name="bigfish", frame_stack=3)
    ended = plain["terminations"] | plain["truncations"]
    # One step ends an episode, the next returns the last frame, the one after that the first.
    begun = np.concatenate([np.ones((1, 2), bool), np.zeros((1, 2), bool), ended[:-2]])
    assert stacked["observations"].shape == (120, 2, 64, 64, 9)
    assert ended.any()
    for i in range(2):
        history: list[np.ndarray] = []
        for t in range(120):
            frame = plain["observations"][t, i]
            history = [frame] * 3 if begun[t, i] else [*history[1:], frame]
            np.testing.assert_array_equal(
                stacked["observations"][t, i], np.concatenate(history, axis=-1)
            )


@pytest.mark.parametrize(
    ("name", "mode"), [(name, mode) for name in GAMES for mode in GAMES[name].modes]
)
def test_all_modes_run(name: str, mode: str) -> None:
    games = VectorProcgen(1, {"env_name": name, "distribution_mode": mode})
    observations, _ = games.reset(seed=1)
    assert observations.std() > 5
    games.step(np.array([7]))


@pytest.mark.parametrize(
    "option", ["paint_vel_info", "use_generated_assets", "center_agent", "start_level"]
)
def test_options_change_what_is_seen(option: str) -> None:
    changed: Any = {"center_agent": False, "start_level": 8}.get(option, True)
    levels = {"num_levels": 1, "start_level": 1}
    # Its player moves immediately, so there is a velocity to paint.
    base = roll(1, 12, 1, env_name="coinrun", **levels)
    other = roll(1, 12, 1, env_name="coinrun", **(levels | {option: changed}))
    assert (base["observations"] != other["observations"]).any()


@pytest.mark.parametrize(
    ("env_config", "message"),
    [
        ({"env_name": "bigfisch"}, r"env_name.* 'bigfisch'"),
        ({"num_level": 3}, "'num_level'.* num_levels"),
        ({"num_levels": -1}, r"num_levels.* 0.* -1"),
        ({"num_levels": 1.5}, r"num_levels.* int.* 1.5"),
        ({"center_agent": 1}, r"center_agent.* bool.* 1"),
        ({"distribution_mode": "memory"}, "distribution_mode"),
        ({"frame_stack": 0}, r"frame_stack.* 1.* 16.* 0"),
        ({"provider": "procgem"}, r"provider.* 'procgem'.* envpool, procgen"),
    ],
)
def test_refusals(env_config: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VectorProcgen(1, env_config)


def test_step_before_reset() -> None:
    with pytest.raises(RuntimeError, match="call reset"):
        VectorProcgen(1).step(np.zeros(1, int))
    with pytest.raises(ValueError, match=r"num_envs.* 1.* 0"):
        VectorProcgen(0)
