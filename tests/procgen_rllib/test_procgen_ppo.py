"""The published PPO: every part of it beside another library, or a plain numpy of its own."""

from typing import Any

import numpy as np
import pytest

from tests.procgen_rllib.episodes import WIDER, batch_of, episodes_of, learner_of, rewards_and_ends

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

procgen_ppo = pytest.importorskip(
    "battlesnake_rl.procgen.procgen_ppo", reason="needs the extra rllib"
)

GAMMA, LAMBDA, CLIP = 0.9, 0.8, 0.2


def normalized(rewards: np.ndarray, ends: np.ndarray, clip: float) -> np.ndarray:
    """What the VecNormalize of another library makes of rewards."""
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env", reason="needs the trainers")
    from gymnasium.spaces import Box, Discrete

    turns, games = rewards.shape

    class Played(vec_env.DummyVecEnv):  # type: ignore[misc, name-defined]
        """Games that pay what is written down."""

        def __init__(self) -> None:
            vec_env.VecEnv.__init__(self, games, Box(0, 1, (1,)), Discrete(2))
            self.turn, self.render_mode = -1, None

        def reset(self) -> np.ndarray:
            return np.zeros((games, 1), np.float32)

        def step_async(self, actions: np.ndarray) -> None:
            self.turn += 1

        def step_wait(self) -> Any:
            return self.reset(), rewards[self.turn], ends[self.turn], [{}] * games

    theirs = vec_env.VecNormalize(Played(), norm_obs=False, gamma=GAMMA, clip_reward=clip)
    theirs.reset()
    return np.array([theirs.step(np.zeros(games))[1] for _ in range(turns)])


def in_parts(rewards: np.ndarray, ends: np.ndarray, first: int, last: int) -> list[Any]:
    """The turns of an iteration as RLlib hands them over: by game, cut where episodes end."""
    from battlesnake_rl.procgen.reward_scale import Part

    parts = []
    for game in range(rewards.shape[1]):
        begin = first
        for turn in range(first, last):
            if ends[turn, game] or turn == last - 1:
                name = f"{game}-{ends[:begin, game].sum()}"
                parts.append(
                    Part(name, np.arange(begin, turn + 1), rewards[begin : turn + 1, game])
                )
                begin = turn + 1
    return parts


def test_rewards_are_normalized_as_by_another_library() -> None:
    from battlesnake_rl.procgen.reward_scale import RewardNormalizer

    rewards, ends = rewards_and_ends(games=5, turns=60)
    expected = normalized(rewards, ends, clip=1.5)
    assert (np.abs(expected) == 1.5).any()
    normalizer = RewardNormalizer(GAMMA, clip=1.5)
    for first, last in ((0, 25), (25, 26), (26, 60)):
        parts = in_parts(rewards, ends, first, last)
        for part, scaled in zip(parts, normalizer(parts), strict=True):
            game = int(part.episode.partition("-")[0])
            np.testing.assert_allclose(scaled, expected[part.clocks, game], rtol=1e-5)


def test_a_normalizer_goes_on_where_it_was() -> None:
    from battlesnake_rl.procgen.reward_scale import RewardNormalizer

    rewards, ends = rewards_and_ends(games=3, turns=20)
    one, other = RewardNormalizer(GAMMA, 10.0), RewardNormalizer(GAMMA, 10.0)
    one(in_parts(rewards, ends, 0, 10))
    other.restore(one.state())
    ends[9] = True  # all games begin anew, as they do where a run is resumed
    late = [
        part._replace(episode=f"new {part.episode}") for part in in_parts(rewards, ends, 10, 20)
    ]
    for ours, theirs in zip(one(late), other(late), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_losses_are_those_of_numpy() -> None:
    import torch

    draw = np.random.default_rng(1)
    logp, old_logp = np.log(draw.uniform(0.05, 1, (2, 200)))
    advantages = draw.normal(2, 7, 200)
    values, old, targets = draw.normal(0, 1, (3, 200))
    usual = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    ratio = np.exp(logp - old_logp)
    policy = [
        max(-a * r, -a * min(max(r, 1 - CLIP), 1 + CLIP)) for a, r in zip(usual, ratio, strict=True)
    ]
    value = [
        max((v - t) ** 2, (o + min(max(v - o, -CLIP), CLIP) - t) ** 2)
        for v, o, t in zip(values, old, targets, strict=True)
    ]
    tensors = [torch.from_numpy(one) for one in (logp, old_logp, advantages, values, old, targets)]
    assert procgen_ppo.policy_loss(*tensors[:3], CLIP).item() == pytest.approx(np.mean(policy))
    assert procgen_ppo.value_loss(*tensors[3:], CLIP).item() == pytest.approx(np.mean(value))
    # Both clips were at work, and so was what they leave alone.
    assert 0 < np.mean(np.abs(ratio - 1) > CLIP) < 1
    assert 0 < np.mean(np.abs(values - old) > CLIP) < 1


@pytest.fixture(scope="module")
def learner() -> Any:
    """A learner of small batches, as an algorithm builds it."""
    return learner_of(
        "ProcgenPPO",
        gamma=GAMMA,
        lambda_=LAMBDA,
        train_batch_size_per_learner=18,
        minibatch_size=6,
        num_epochs=2,
        reward_clip=1.5,
    )


def test_a_batch_is_what_numpy_makes_of_the_episodes(learner: Any) -> None:
    import torch

    rewards, ends = rewards_and_ends(games=3, turns=7)
    ends[3, 1] = True
    episodes = episodes_of(rewards, ends)
    scaled = normalized(rewards, ends, clip=1.5)
    expected = {}
    for one in episodes:
        clocks = [info["clock"] for info in one.get_infos()[1:]]
        (game,) = (g for g in range(3) if np.allclose(rewards[clocks, g], one.get_rewards()))
        paid = scaled[clocks, game]
        pictures = torch.from_numpy(np.stack(one.get_observations()))
        values = learner.module["default_policy"].compute_values({"obs": pictures}).numpy()
        following = 0.0
        values[-1] *= not one.is_terminated
        for turn in reversed(range(len(paid))):
            wrong = paid[turn] + GAMMA * values[turn + 1] - values[turn]
            following = wrong + GAMMA * LAMBDA * following
            key = np.stack(one.get_observations())[turn].tobytes()
            expected[key] = (following, following + values[turn], values[turn])
    batch = batch_of(learner, episodes)
    assert len(expected) == 21
    assert {len(column) for column in batch.values()} == {18}
    # In another order, so that the first minibatch is not of the first game alone.
    played = [picture.tobytes() for one in episodes for picture in one.get_observations()]
    places = [played.index(row.numpy().tobytes()) for row in batch["obs"]]
    assert places != sorted(places)
    for row in range(18):
        advantage, target, value = expected[batch["obs"][row].numpy().tobytes()]
        assert batch["advantages"][row].item() == pytest.approx(advantage, abs=1e-5)
        assert batch["value_targets"][row].item() == pytest.approx(target, abs=1e-5)
        assert batch["vf_preds"][row].item() == pytest.approx(value, abs=1e-5)


def test_an_update_makes_as_many_steps_as_there_are_minibatches(learner: Any) -> None:
    episodes = episodes_of(*rewards_and_ends(games=3, turns=7))
    before = learner._normalizer.state()["count"]
    learner.update(episodes=episodes, num_epochs=2, minibatch_size=6, shuffle_batch_per_epoch=True)
    (optimizer,) = learner._optimizer_parameters
    assert optimizer.defaults["eps"] == 1e-5
    assert {int(state["step"]) for state in optimizer.state.values()} == {2 * 3}
    # The last layers' gradients were clipped together with all others.
    assert learner._normalizer.state()["count"] == before + 21


def shared(games: int, runners: int, **training: Any) -> Any:
    """The validated configuration of so many runners."""
    from battlesnake_rl.procgen.train_procgen import ProcgenHyperparameters, configure

    config = configure(ProcgenHyperparameters(algorithm="ProcgenPPO"))
    config.games, config.num_env_runners = games, runners
    config.learners(num_gpus_per_learner=0)
    config.training(**training)
    config.validate()
    return config


@pytest.mark.parametrize(("runners", "each"), [(0, 64), (1, 64), (8, 8), (64, 1)])
def test_runners_share_the_games(runners: int, each: int) -> None:
    config = shared(64, runners)
    assert config.num_envs_per_env_runner == each
    assert config.get_rollout_fragment_length() == 256
    # On a cluster the runners are counted once more.
    config.num_env_runners = 16
    config.validate()
    assert config.num_envs_per_env_runner == 4


def test_what_is_not_honoured_is_refused() -> None:
    from battlesnake_rl.procgen.train_procgen import ProcgenHyperparameters, configure

    with pytest.raises(ValueError, match=r"num_workers 7 cannot share 64 games .* 1, 2, 4, 8, 16"):
        shared(64, 7)
    with pytest.raises(ValueError, match="use_kl_loss must be false"):
        shared(64, 1, use_kl_loss=True)
    with pytest.raises(ValueError, match="16384 must be a multiple of minibatch_size 1000"):
        shared(64, 1, minibatch_size=1000)
    config = configure(ProcgenHyperparameters(algorithm="ProcgenPPO"))
    config.env_runners(num_envs_per_env_runner=12, num_env_runners=2)
    with pytest.raises(ValueError, match="num_envs_per_env_runner is 12, but the runners share"):
        config.validate()
    config.env_runners(num_envs_per_env_runner=1)
    config.learners(num_learners=2, num_gpus_per_learner=0)
    with pytest.raises(ValueError, match="reward_normalization needs all games in one learner"):
        config.validate()


def test_what_pays_is_learned() -> None:
    """On dark frames one action pays, on bright ones another."""
    import torch
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    torch.manual_seed(1)
    learner = learner_of(
        "ProcgenPPO",
        network=WIDER,
        train_batch_size_per_learner=128,
        minibatch_size=64,
        num_epochs=4,
        lr=5e-3,
    )
    module, draw = learner.module["default_policy"], np.random.default_rng(1)
    frames = np.stack([np.full((16, 16, 3), 40, np.uint8), np.full((16, 16, 3), 220, np.uint8)])
    pays = np.array([3, 7])

    def chances() -> np.ndarray:
        with torch.no_grad():
            out = module.forward_train({"obs": torch.from_numpy(frames)})
        powers = np.exp(out["action_dist_inputs"].numpy().astype(float))
        return np.asarray(powers / powers.sum(-1, keepdims=True))

    for iteration in range(40):  # some 12, which the processor's rounding moves
        now, episodes = chances(), []
        if now[[0, 1], pays].min() > 0.2:
            return
        for _ in range(16):
            bright = draw.integers(2, size=9)
            one = SingleAgentEpisode()
            one.add_env_reset(frames[bright[0]], {"clock": 0, "level_seed": 0})
            for turn in range(8):
                action = int(draw.choice(15, p=now[bright[turn]]))
                one.add_env_step(
                    frames[bright[turn + 1]],
                    action,
                    float(action == pays[bright[turn]]),
                    {"clock": iteration * 8 + turn, "level_seed": 0},
                    terminated=turn == 7,
                    extra_model_outputs={
                        "action_logp": np.float32(np.log(now[bright[turn], action])),
                        "action_dist_inputs": np.log(now[bright[turn]]).astype(np.float32),
                    },
                )
            episodes.append(one.to_numpy())
        learner.update(
            episodes=episodes,
            num_epochs=learner.config.num_epochs,
            minibatch_size=64,
            shuffle_batch_per_epoch=True,
        )
    pytest.fail(f"after {iteration + 1} iterations, what pays has the chances {now[[0, 1], pays]}")
