"""Level replay, RAD, DrAC, PPG, DAAC and IDAAC: every part beside numpy, and all of them learn."""

import copy
from typing import Any

import numpy as np
import pytest

from tests.procgen_rllib.episodes import WIDER, batch_of, episodes_of, learner_of, rewards_and_ends
from tests.progress import rows

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

pytest.importorskip("procgen_rllib.procgen_ppo", reason="needs the extra rllib")


def softmax(logits: np.ndarray) -> np.ndarray:
    powers: np.ndarray = np.exp(logits - logits.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def kl(logits: np.ndarray, others: np.ndarray) -> float:
    """Mean divergence of the second policy from the first."""
    p, q = softmax(logits), softmax(others)
    return float((p * np.log(p / q)).sum(-1).mean())


# Level replay


def plain_chances(history: list[tuple[int, float]], count: int) -> np.ndarray:
    """Chances after whole episodes, one after the other, as the paper's formulas say."""
    last_score = dict(history)
    if len(last_score) < count:
        return np.array([0.0 if level in last_score else 1.0 for level in range(count)]) / (
            count - len(last_score)
        )
    order = sorted(range(count), key=lambda level: -last_score[level])
    h = np.array([1 / (order.index(level) + 1) for level in range(count)])
    p_score = h ** (1 / 0.1) / (h ** (1 / 0.1)).sum()
    episodes = [level for level, _ in history]
    since = np.array([episodes[::-1].index(level) for level in range(count)], dtype=float)
    chances: np.ndarray = 0.9 * p_score + 0.1 * since / since.sum()
    return chances


def test_levels_are_drawn_as_the_paper_says() -> None:
    from procgen_rllib.level_replay import LevelSampler, Stay

    draw = np.random.default_rng(0)
    sampler = LevelSampler(40, 5, temperature=0.1, staleness=0.1)
    history: list[tuple[int, float]] = []
    replayed = 0
    for _ in range(60):
        expected = plain_chances(history, 5)
        np.testing.assert_allclose(sampler.chances(), expected, atol=1e-12)
        replayed += len(dict(history)) == 5
        new = [(int(draw.choice(5, p=expected)), float(draw.random())) for _ in range(3)]
        stays = [Stay(40 + new[i][0], True, len(history) + i, new[i][1]) for i in (2, 0, 1)]
        sampler.watch(stays)
        history += new
    assert replayed > 20


def test_an_episode_that_goes_on_is_not_begun_again() -> None:
    from procgen_rllib.level_replay import LevelSampler, Stay

    sampler = LevelSampler(0, 2, temperature=1.0, staleness=0.5)
    sampler.watch([Stay(0, True, 1, 3.0), Stay(1, True, 2, 1.0)])
    before = sampler.chances()
    np.testing.assert_allclose(before, [0.5 * 2 / 3 + 0.5, 0.5 / 3])
    sampler.watch([Stay(1, False, 3, 9.0)])
    # Its score is another, but no level has waited for longer.
    np.testing.assert_allclose(sampler.chances(), [0.5 / 3 + 0.5, 0.5 * 2 / 3])
    other = LevelSampler(0, 2, temperature=1.0, staleness=0.5)
    other.restore(sampler.state())
    np.testing.assert_array_equal(other.chances(), sampler.chances())


def test_the_learner_scores_levels_by_the_size_of_their_advantages() -> None:
    learner = learner_of(
        "ProcgenPPO", level_replay=True, train_batch_size_per_learner=18, minibatch_size=6
    )
    rewards, ends = rewards_and_ends(games=3, turns=7)
    ends[3, 1] = True
    learner.level_sampler._start = 100
    episodes = episodes_of(rewards, ends)
    seen: list[np.ndarray] = []
    normalized = learner._normalizer.__class__.__call__

    def keep(self: Any, parts: Any) -> Any:
        seen.extend(normalized(self, parts))
        return seen

    learner._normalizer.__class__.__call__ = keep
    try:
        batch_of(learner, copy.deepcopy(episodes))
    finally:
        learner._normalizer.__class__.__call__ = normalized
    import torch

    expected: dict[int, float] = {}
    last = [one.get_infos(-1)["clock"] for one in episodes]
    for place in np.argsort(last, kind="stable"):
        one, paid = episodes[place], seen[place]
        pictures = torch.from_numpy(np.stack(one.get_observations()))
        values = learner.module["default_policy"].compute_values({"obs": pictures}).numpy()
        values[-1] *= not one.is_terminated
        advantage, sizes = 0.0, []
        for turn in reversed(range(len(paid))):
            wrong = paid[turn] + 0.999 * values[turn + 1] - values[turn]
            advantage = wrong + 0.999 * 0.95 * advantage
            sizes.append(abs(advantage))
        expected[one.get_infos(0)["level_seed"] - 100] = float(np.mean(sizes))
    state = learner.level_sampler.state()
    assert set(np.flatnonzero(state["seen"])) == {0, 1, 2} == set(expected)
    np.testing.assert_allclose(state["scores"][:3], [expected[i] for i in range(3)], rtol=1e-4)


def test_games_play_the_levels_that_are_drawn() -> None:
    from procgen_rllib.environment import VectorProcgen

    levels = iter([7, 3, 9, 4, 4, 8, 1, 2, 5, 6] * 20)
    games = VectorProcgen(2, {"env_name": "bossfight", "num_levels": 200})
    games.draw_level = lambda: next(levels)
    frames, infos = games.reset(seed=1)
    assert infos["level_seed"].tolist() == [7, 3]
    for game, level in enumerate((7, 3)):
        alone = VectorProcgen(1, {"env_name": "bossfight", "num_levels": 1, "start_level": level})
        np.testing.assert_array_equal(alone.reset(seed=5)[0][0], frames[game])
        alone.close()
    draw, begun = np.random.default_rng(0), [7, 3]
    ended = np.zeros(2, dtype=bool)
    while len(begun) < 6:
        _, _, terminations, truncations, infos = games.step(draw.integers(0, 15, 2))
        begun += infos["level_seed"][ended].tolist()
        ended = terminations | truncations
    assert begun[:6] == [7, 3, 9, 4, 4, 8]
    games.close()


# RAD


def test_frames_are_shifted_as_numpy_does_it() -> None:
    from procgen_rllib.rad import shifted

    draw = np.random.default_rng(0)
    frames = draw.integers(0, 256, (6, 64, 64, 3), dtype=np.uint8)
    down, right = draw.integers(-5, 6, (2, 6))
    padded = np.pad(frames, ((0, 0), (5, 5), (5, 5), (0, 0)), mode="edge")
    for i, window in enumerate(shifted(frames, down, right)):
        top, left = 5 + down[i], 5 + right[i]
        np.testing.assert_array_equal(window, padded[i, top : top + 64, left : left + 64])
    np.testing.assert_array_equal(shifted(frames, down * 0, right * 0), frames)


def test_each_game_has_a_window_of_its_own_for_as_many_turns() -> None:
    from procgen_rllib.rad import Windows

    windows = Windows(200, 3, [1])
    frames = np.tile(np.arange(64, dtype=np.uint8)[:, None, None], (200, 1, 64, 1))
    middles = [windows(frames)[:, 32, 32, 0].astype(int) - 32 for _ in range(6)]
    assert set(middles[0]) == set(range(-5, 6))
    for turn in (1, 2):
        np.testing.assert_array_equal(middles[turn], middles[0])
        np.testing.assert_array_equal(middles[3 + turn], middles[3])
    assert (middles[3] != middles[0]).mean() > 0.8


# DrAC


def test_crops_are_those_of_a_frame_with_its_edge_repeated() -> None:
    import torch

    from procgen_rllib.drac import cropped

    torch.manual_seed(0)
    rows, columns = np.meshgrid(np.arange(64), np.arange(64), indexing="ij")
    picture = np.stack([rows, columns], axis=-1).astype(np.uint8)
    crops = cropped(torch.from_numpy(np.tile(picture, (2000, 1, 1, 1)))).numpy()
    padded = np.pad(picture, ((12, 12), (12, 12), (0, 0)), mode="edge")
    tops, lefts = (crops[:, 32, 32, i].astype(int) - 32 + 12 for i in (0, 1))
    for crop, top, left in zip(crops, tops, lefts, strict=True):
        np.testing.assert_array_equal(crop, padded[top : top + 64, left : left + 64])
    assert set(tops) == set(lefts) == set(range(25))
    assert abs(np.corrcoef(tops, lefts)[0, 1]) < 0.1


def test_drac_adds_both_terms_to_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from procgen_rllib import drac
    from procgen_rllib.procgen_ppo import ProcgenPPOLearner

    learner = learner_of("DrAC", train_batch_size_per_learner=18, minibatch_size=6)
    module = learner.module["default_policy"]
    with torch.no_grad():
        module.policy.weight.normal_(0, 30)
        module.value.weight.normal_(0, 30)
    monkeypatch.setattr(drac, "cropped", lambda pictures: pictures.flip(2))
    # Bright to the right, each further than the last.
    shades = np.arange(16)[None, :] * np.arange(1, 7)[:, None] * 2
    shades = np.tile(shades[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8)
    batch = {"obs": torch.from_numpy(shades)}
    batch |= {name: torch.rand(6) for name in ("advantages", "value_targets", "vf_preds")}
    batch |= {"actions": torch.arange(6), "action_logp": torch.full((6,), -2.7)}
    out = module.forward_train(batch)
    given = {"module_id": "default_policy", "config": learner.config, "batch": batch}
    with_terms = learner.compute_loss_for_module(**given, fwd_out=out)
    without = ProcgenPPOLearner.compute_loss_for_module(learner, **given, fwd_out=out)
    flipped = {"obs": batch["obs"].flip(2)}
    logits, on_crops = (
        module.forward_train(one)["action_dist_inputs"].detach().numpy() for one in (batch, flipped)
    )
    values, seen = (module.compute_values(one).numpy() for one in (batch, flipped))
    terms = kl(logits, on_crops) + 0.5 * np.mean((values - seen) ** 2)
    assert terms > 1e-3
    assert (with_terms - without).item() == pytest.approx(0.1 * terms, rel=1e-3)


# PPG


def test_the_losses_of_the_auxiliary_phase_are_those_of_numpy() -> None:
    import torch

    from procgen_rllib.ppg import auxiliary_losses

    draw = np.random.default_rng(0)
    auxiliary, values, targets = draw.normal(0, 1, (3, 50))
    before, now = draw.normal(0, 1, (2, 50, 15))
    arrays = (auxiliary, values, targets, before, now)
    losses = auxiliary_losses(*(torch.from_numpy(one) for one in arrays))
    expected = [
        0.5 * np.mean((auxiliary - targets) ** 2),
        0.5 * np.mean((values - targets) ** 2),
        kl(before, now),
    ]
    np.testing.assert_allclose([one.item() for one in losses], expected, rtol=1e-9)


def weights(module: Any, *names: str) -> list[np.ndarray]:
    """Of parts of a network, copies."""
    return [
        one.detach().numpy().copy() for name in names for one in getattr(module, name).parameters()
    ]


def same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def learn(learner: Any, epochs: int = 1) -> None:
    """One iteration of 21 turns, of which 18 are learned from."""
    learner.update(
        episodes=episodes_of(*rewards_and_ends(games=3, turns=7)),
        num_epochs=epochs,
        minibatch_size=6,
        shuffle_batch_per_epoch=True,
    )


def test_the_auxiliary_phase_comes_when_it_is_time_for_it() -> None:
    learner = learner_of(
        "PPG",
        train_batch_size_per_learner=18,
        minibatch_size=6,
        auxiliary_interval=2,
        auxiliary_minibatch_size=12,
        auxiliary_epochs=3,
    )
    module = learner.module["default_policy"]
    head, both = weights(module, "auxiliary_value"), weights(module, "trunk", "value_trunk")
    learn(learner)
    # The policy phase, in which the policy's network is not asked for values.
    assert same(weights(module, "auxiliary_value"), head)
    assert not same(weights(module, "trunk"), both[: len(both) // 2])
    assert len(learner._kept) == 1
    state = learner.get_state()
    learn(learner)
    assert not same(weights(module, "auxiliary_value"), head)
    assert learner._kept == []
    # Three epochs of 36 turns, by an optimizer that had none of the policy phase's steps.
    steps = {int(one["step"]) for one in learner._auxiliary.state_dict()["state"].values()}
    assert steps == {3 * 3}
    learner.set_state(state)
    learn(learner)
    # It goes on from the first iteration, with what has been played since.
    steps = {int(one["step"]) for one in learner._auxiliary.state_dict()["state"].values()}
    assert steps == {3 * 2}


def test_the_auxiliary_phase_teaches_values_and_keeps_the_policy() -> None:
    import torch

    from procgen_rllib.ppg import Kept

    torch.manual_seed(0)
    learner = learner_of(
        "PPG", network=WIDER, auxiliary_epochs=30, auxiliary_minibatch_size=32, lr=3e-3
    )
    module = learner.module["default_policy"]
    pictures = torch.zeros(64, 16, 16, 3, dtype=torch.uint8)
    pictures[32:] = 255
    targets = torch.where(torch.arange(64) < 32, -1.0, 1.0)
    before = learner._logits(pictures)
    learner._kept = [Kept(pictures[::2], targets[::2]), Kept(pictures[1::2], targets[1::2])]
    learner._auxiliary_phase()
    with torch.no_grad():
        out = module.forward_train({"obs": pictures})
        told = module.auxiliary_values(out["embeddings"])
    assert (told - targets).square().mean() < 0.2
    assert (module.compute_values({"obs": pictures}) - targets).square().mean() < 0.2
    assert kl(before.numpy(), out["action_dist_inputs"].numpy()) < 1e-2


# DAAC and IDAAC


def test_each_network_learns_from_its_own_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(
        "DAAC", train_batch_size_per_learner=18, minibatch_size=6, value_epochs=4, value_interval=2
    )
    module = learner.module["default_policy"]
    policys, values = ("trunk", "policy", "advantage"), ("value_trunk", "value")
    policy, value = weights(module, *policys), weights(module, *values)
    learner._iterations = 1
    learn(learner)
    assert not same(weights(module, *policys), policy)
    assert same(weights(module, *values), value)
    learn(learner)
    assert not same(weights(module, *values), value)
    steps = {
        name.rpartition("_")[2]: {int(one["step"]) for one in optimizer.state.values()}
        for name, optimizer in learner._named_optimizers.items()
    }
    assert steps == {"policy": {2 * 3}, "values": {4 * 3}}


def test_the_loss_of_the_policys_network_is_that_of_numpy() -> None:
    import torch

    learner = learner_of("DAAC", train_batch_size_per_learner=18, minibatch_size=6)
    module = learner.module["default_policy"]
    with torch.no_grad():
        module.policy.weight.normal_()
    columns = {"advantages": torch.randn(18) * 5 + 3}
    advantages = learner.about_to_learn(columns)["advantages"].numpy()
    assert advantages.mean() == pytest.approx(0, abs=1e-5)
    assert advantages.std(ddof=1) == pytest.approx(1, abs=1e-4)
    draw = np.random.default_rng(0)
    batch = {"obs": torch.from_numpy(draw.integers(0, 256, (6, 16, 16, 3), dtype=np.uint8))}
    actions, old = np.arange(6) * 2, draw.uniform(-4, -1, 6)
    batch |= {"actions": torch.from_numpy(actions), "action_logp": torch.from_numpy(old)}
    batch |= {"advantages": torch.from_numpy(advantages[:6])}
    out = module.forward_train(batch)
    loss = learner.compute_loss_for_module(
        module_id="default_policy", config=learner.config, batch=batch, fwd_out=out
    )
    chances = softmax(out["action_dist_inputs"].detach().numpy().astype(float))
    features = out["embeddings"].detach().numpy()
    layer = module.advantage
    told = np.concatenate([features, np.eye(15)[actions]], axis=1) @ layer.weight.detach().numpy().T
    told = told[:, 0] + layer.bias.item()
    ratio = chances[np.arange(6), actions] / np.exp(old)
    gained = np.minimum(ratio * advantages[:6], np.clip(ratio, 0.8, 1.2) * advantages[:6])
    entropy = -(chances * np.log(chances)).sum(1).mean()
    error = np.mean((told - advantages[:6]) ** 2)
    assert loss.item() == pytest.approx(-gained.mean() + 0.25 * error - 0.01 * entropy, rel=1e-4)


def test_pairs_are_of_one_level_and_their_order_is_told() -> None:
    learner = learner_of("IDAAC", train_batch_size_per_learner=18, minibatch_size=6)
    rewards, ends = rewards_and_ends(games=3, turns=7)
    ends[3, 1] = True
    episodes = episodes_of(rewards, ends)
    place = {
        picture.tobytes(): (one.get_infos(0)["level_seed"], turn)
        for one in episodes
        for turn, picture in enumerate(one.get_observations())
    }
    batch = batch_of(learner, episodes)
    kinds = set()
    for row in range(18):
        level, turn = place[batch["obs"][row].numpy().tobytes()]
        other, then = place[batch["obs"][batch["other"][row]].numpy().tobytes()]
        assert level == other
        assert batch["later"][row].item() == (then < turn)
        kinds.add((then > turn) - (then < turn))
    assert kinds >= {-1, 1}


def test_the_classifier_learns_the_order_and_the_policys_network_doubt() -> None:
    import torch

    learner = learner_of(
        "IDAAC", train_batch_size_per_learner=18, minibatch_size=18, lr=1e-2, order_coeff=3.0
    )
    module, layer = learner.module["default_policy"], learner._classifier[0]
    draw = np.random.default_rng(0)
    columns = {"obs": torch.from_numpy(draw.integers(0, 256, (18, 16, 16, 3), dtype=np.uint8))}
    columns |= {
        "level": torch.zeros(18),
        "turn": torch.arange(18),
        "actions": torch.arange(18) % 15,
    }
    columns |= {"action_logp": torch.full((18,), -2.7), "advantages": torch.randn(18)}
    batch = learner.about_to_learn(columns)
    out = module.forward_train(batch)
    features = out["embeddings"].detach().numpy().astype(float)
    pairs = np.concatenate([features, features[batch["other"].numpy()]], axis=1)
    later, before = batch["later"].numpy(), layer.weight.detach().numpy()[0].astype(float)

    def chances() -> np.ndarray:
        weight = layer.weight.detach().numpy()[0].astype(float)
        told: np.ndarray = 1 / (1 + np.exp(-pairs @ weight - layer.bias.item()))
        return told

    gradient = pairs.T @ (chances() - later) / 18
    given = {"module_id": "default_policy", "batch": batch, "fwd_out": out}
    loss = learner.compute_loss_for_module(config=learner.config, **given)
    # The first step of Adam is as long as its rate, against the gradient.
    moved = layer.weight.detach().numpy()[0] - before
    there = np.abs(gradient) > 1e-4
    assert there.sum() >= 4
    np.testing.assert_allclose(moved[there], -1e-2 * np.sign(gradient[there]), rtol=0.2)
    # The network's loss is against the classifier that has learned.
    p = chances()
    doubt = -(0.5 * np.log(p) + 0.5 * np.log(1 - p)).mean()
    from procgen_rllib.idaac import DAACLearner

    plain = DAACLearner.compute_loss_for_module(learner, config=learner.config, **given)
    assert (loss - plain).item() == pytest.approx(3.0 * doubt, rel=1e-4)
    # It reaches the network; what is left where the other terms cancel is far less.
    (gradient_of_trunk,) = torch.autograd.grad(loss - plain, module.trunk.layers[-2].weight)
    assert gradient_of_trunk.abs().max() > 1e-4


def test_the_classifier_goes_on_where_it_was() -> None:
    learner = learner_of("IDAAC", train_batch_size_per_learner=18, minibatch_size=6, order_width=4)
    learn(learner)
    state = learner.get_state()
    kept = {name: one.clone() for name, one in learner._classifier.state_dict().items()}
    learn(learner)
    assert any((kept[name] != one).any() for name, one in learner._classifier.state_dict().items())
    learner.set_state(state)
    assert all((kept[name] == one).all() for name, one in learner._classifier.state_dict().items())
    assert learner._iterations == 1
    steps = {int(one["step"]) for one in learner._classifying.state_dict()["state"].values()}
    assert steps == {3}


# All of them


@pytest.mark.parametrize("algorithm", ["ProcgenPPO", "DrAC", "PPG", "DAAC", "IDAAC"])
def test_what_pays_is_learned(algorithm: str) -> None:
    """On dark frames one action pays, on bright ones another."""
    import torch
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    settings: dict[str, Any] = {"PPG": {"auxiliary_interval": 5}, "DAAC": {"value_epochs": 4}}.get(
        algorithm, {}
    )
    torch.manual_seed(1)
    learner = learner_of(
        algorithm,
        network=WIDER,
        train_batch_size_per_learner=128,
        minibatch_size=64,
        num_epochs=4,
        lr=5e-3,
        **settings,
    )
    module, draw = learner.module["default_policy"], np.random.default_rng(1)
    frames = np.stack([np.full((16, 16, 3), 40, np.uint8), np.full((16, 16, 3), 220, np.uint8)])
    pays = np.array([3, 7])

    def chances() -> np.ndarray:
        with torch.no_grad():
            out = module.forward_train({"obs": torch.from_numpy(frames)})
        return softmax(out["action_dist_inputs"].numpy().astype(float))

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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rl.training.config.level_replay", "true"], "num_levels is 0: all there are"),
        (
            ["--run", "DrAC", "--rl.training.config.rad", "true"],
            "rad must be false: DrAC plays on the frames as they are",
        ),
        (
            ["--run", "PPG", "--custom-model", "my_vision_network"],
            "custom_model must be impala_cnn",
        ),
        (["--run", "DAAC", "--rl.training.config.value_epochs", "0"], "value_epochs must be at"),
        (
            ["-f", "ppg", "--rl.training.config.auxiliary_interval", "0"],
            "auxiliary_interval must be at least 1, got 0",
        ),
        (
            ["-f", "level-replay", "--rl.training.config.level_replay_staleness", "2.0"],
            "level_replay_staleness must be between 0 and 1, got 2.0",
        ),
        (
            ["-f", "level-replay", "--rl.training.config.level_replay_temperature", "0.0"],
            "level_replay_temperature must be positive",
        ),
        (["-f", "idaac", "--rl.training.config.num_learners", "2"], "num_learners is 2, but"),
        (["-f", "one-hour", "--rl.training.config.rad", "true"], "unknown hyperparameter"),
    ],
)
def test_what_does_not_go_together_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from procgen_rllib.launcher import ProcgenLauncher

    assert ProcgenLauncher.train_main(words) == 2
    assert message in capsys.readouterr().err


SHORT = [
    *("--env-name", "bossfight", "--num-workers", "0", "--seed", "3"),
    *("--hyperparameter", 'custom_options={"channels": [2, 3, 4], "width": 6}'),
    *("--rl.training.config.games", "8"),
    *("--rl.training.config.train_batch_size_per_learner", "128"),
    *("--rl.training.config.minibatch_size", "64"),
    *("--rl.training.config.evaluation_interval", "2"),
    *("--rl.training.config.evaluation_duration", "2"),
]  # fmt: skip


def train(runs: Any, *words: str) -> int:
    from procgen_rllib.launcher import ProcgenLauncher

    return ProcgenLauncher.train_main([*words, *SHORT, "--name", "short", "--runs", str(runs)])


def test_a_run_with_everything_goes_on_from_its_checkpoint(
    ray_session: None, tmp_path: Any
) -> None:
    from procgen_rllib.rollout import load_policy
    from sagemaker_rl.runs import checkpoints

    words = ["-f", "idaac"]
    for name in ("level_replay", "rad"):
        words += [f"--rl.training.config.{name}", "true"]
    assert train(tmp_path, *words, "--num-iters", "1") == 0
    assert train(tmp_path, *words, "--num-iters", "2") == 0
    table = rows(tmp_path / "short")
    assert [row["training_iteration"] for row in table] == ["1", "2"]
    assert [row["test_reward_mean"] != "" for row in table] == [False, True]
    last = sorted((tmp_path / "short" / "checkpoints").glob("checkpoint_*"))[-1]
    state = checkpoints.load_numbers(last / "learner_group" / "learner" / "state.pkl")
    assert state["value_phase"] == {"iterations": 2}
    seen = state["level_replay"]["seen"].sum()
    assert 8 <= seen < 200
    steps = {int(one["step"]) for one in state["order_classifier"]["optimizer"]["state"].values()}
    assert steps == {2 * 2}
    frames = np.zeros((3, 64, 64, 3), np.uint8)
    assert load_policy(last)(frames).shape == (3,)


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["drac", "ppg", "daac", "rad", "level-replay"])
def test_every_experiment_goes_on_from_its_checkpoint(
    ray_session: None, tmp_path: Any, experiment: str
) -> None:
    words = ["-f", experiment]
    if experiment == "ppg":
        words += ["--rl.training.config.auxiliary_interval", "2"]
    assert train(tmp_path, *words, "--num-iters", "1") == 0
    assert train(tmp_path, *words, "--num-iters", "3") == 0
    assert [row["training_iteration"] for row in rows(tmp_path / "short")] == ["1", "2", "3"]
