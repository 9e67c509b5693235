"""RECURRENT_PPO: sequences, states, the critic, learning, checkpoints, export and serving."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from battlesnake_gym import policy_file
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import limit_view
from battlesnake_gym.env.seat_memory import SeatMemory, onnx_score_fn
from battlesnake_gym.env.seated_opponents import SeatedOpponents
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.mdp import observations
from battlesnake_gym.mdp.observations import PLANES
from battlesnake_gym.policy_file import PolicyError
from battlesnake_gym.rules import MOVES, Game, Settings
from battlesnake_rl.commands import evaluate_command
from battlesnake_rl.commands.train_command import main
from battlesnake_rl.mabs.policy.actor_critic import _RecurrentPolicyNetwork
from battlesnake_rl.mabs.policy.policy_loader import as_score_fn, greedy_policy
from battlesnake_rl.mabs.policy.q_network import network_settings
from battlesnake_rl.mabs.strength import ladder_evaluator
from battlesnake_rl.onnx_export import check_in_games, write_onnx
from battlesnake_server.live.app import create_app
from battlesnake_server.strategy_loader import open_factory
from tests import progress_csv
from tests.algorithms import built
from tests.mabs.conftest import TINY, small_policy

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def recurrent(ray_with_games: None) -> Callable[..., Any]:
    """A function that makes a configuration which trains in seconds."""
    return partial(small_policy, "RECURRENT_PPO")


def network(gru_size: int = 8) -> Any:
    """A recurrent network for boards of 7x7, whose state matters."""
    torch.manual_seed(3)
    settings = TINY | {"head_crop": 3, "head_plane": 6, "gru_size": gru_size}
    made = _RecurrentPolicyNetwork((10, 7, 7), 4, **settings)
    with torch.no_grad():
        made.policy.weight.mul_(20)
    return made.eval()


@pytest.mark.parametrize("fragments", [1, 3])
@pytest.mark.parametrize("full_board_critic", [True, False])
def test_the_learner_computes_what_the_env_runner_played(
    recurrent: Any, full_board_critic: bool, fragments: int
) -> None:
    """The log-probs and values of sequences are those of single steps, also after resets."""
    config = recurrent(max_turns=11, opponents={"random": 0.3})
    config.rl_module(model_config=TINY | {"bfloat16": False})
    config.training(symmetry_augmentation=True, full_board_critic=full_board_critic)
    with built(config) as algorithm:
        for _ in range(fragments):
            (rollout,) = algorithm.env_runner.sample()
        learner = algorithm.learner_group._learner
        columns = learner._to_batch(rollout)
        columns["row"] = torch.arange(len(rollout.columns["actions"]))
        columns["value"] = torch.from_numpy(rollout.values[:-1][rollout.acted])
        rows: list[int] = []
        for batch in learner._minibatches(columns):
            outputs = learner._forward(batch)
            log_all = outputs["action_dist_inputs"].log_softmax(-1)
            log_probs = log_all.gather(-1, batch["actions"][:, None])[:, 0]
            torch.testing.assert_close(log_probs, batch["old_log_probs"], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(outputs["vf_preds"], batch["value"], atol=1e-4, rtol=1e-4)
            rows += batch["row"].tolist()
        assert sorted(rows) == list(range(len(rollout.columns["actions"])))
        states = rollout.columns["state_in"]
        assert (states == 0).all(-1).any()
        assert (states != 0).any(-1).any()


def test_a_state_is_zero_at_the_start_of_a_game_and_only_then(recurrent: Any) -> None:
    with built(recurrent(max_turns=6)) as algorithm:
        runner = algorithm.env_runner
        for _ in range(3):
            (rollout,) = runner.sample()
            is_zero = (rollout.columns["state_in"] == 0).all(-1)
            # The own body is stacked on turn 0 only, and its cell then is free in three turns.
            cells = (rollout.columns["obs"][:, PLANES.index("own_body")] > 0).sum((1, 2))
            np.testing.assert_array_equal(is_zero, cells == 1)
            assert is_zero.any()
            assert not is_zero.all()


def test_the_critic_sees_hidden_cells(recurrent: Any) -> None:
    with built(recurrent()) as algorithm:
        (rollout,) = algorithm.env_runner.sample()
        complete = rollout.columns["complete_obs"]
        bodies, own = PLANES.index("other_bodies"), PLANES.index("own_body")
        assert (complete[:, bodies] > 0).sum() > (rollout.columns["obs"][:, bodies] > 0).sum() > 0
        np.testing.assert_array_equal(complete[:, own], rollout.columns["obs"][:, own])
        exported = algorithm.get_module().network.state_dict()
        assert not any("value" in name or "critic" in name for name in exported)


def test_complete_observations_are_those_without_a_limit() -> None:
    options: dict[str, Any] = {"num_snakes": 3, "width": 7, "height": 7}
    limited = VectorBattlesnake(5, **options, settings={"view_radius": 1})
    unlimited = VectorBattlesnake(5, **options)
    shape = (10, 7, 7)
    complete = limited.observe_as(limited.observation, shape, complete=True)
    seen, _ = limited.reset(seed=2)
    expected, infos = unlimited.reset(seed=2)
    random = np.random.default_rng(1)
    for _ in range(30):
        np.testing.assert_array_equal(complete, expected)
        assert (seen != complete).any()
        actions = random.integers(4, size=infos["alive"].shape).astype(np.uint8)
        seen = limited.step(actions)[0]
        expected, *_, infos = unlimited.step(actions)
    assert unlimited.observe_as(limited.observation, shape, complete=True) is unlimited._obs


def test_it_learns_to_remember() -> None:
    """The cue of the first move is known at the third, only with a memory."""
    torch.manual_seed(1)
    made = _RecurrentPolicyNetwork((1, 3, 3), 4, gru_size=8, **TINY, head_crop=0, head_plane=None)
    optimizer = torch.optim.Adam(made.parameters(), 1e-2)
    by_step = torch.tensor([64, 64, 64])
    for _ in range(150):
        cue = torch.randint(4, (64,))
        first = (cue * 60).to(torch.uint8)[:, None, None, None].expand(64, 1, 3, 3)
        planes = torch.cat((first, torch.zeros(128, 1, 3, 3, dtype=torch.uint8)))
        memory = made.remember_sequences(made.features(planes), torch.zeros(64, 8), by_step)
        loss = torch.nn.functional.cross_entropy(made.policy(memory[128:]), cue)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert loss.item() < 0.5  # Without a memory, it would be 1.39.


def test_a_batch_of_seats_has_the_states_of_single_games() -> None:
    """Past selves, the ladder and the arena keep a state for each seat."""
    vector = VectorBattlesnake(6, 3, 7, 7, max_turns=9, settings={"view_radius": 2})
    act: Any = greedy_policy(as_score_fn(network()))
    memory = SeatMemory(vector)
    alone: dict[tuple[int, int, int], Any] = {}
    seen, infos = vector.reset(seed=4)
    kept = set()
    for _ in range(25):
        alive = infos["alive"]
        actions = np.zeros(alive.shape, np.uint8)
        if alive.any():
            actions[alive] = memory.call(act, alive, seen[alive], infos["action_mask"][alive])
        for game, seat in np.argwhere(alive):
            key = int(vector.episodes[game]), int(game), int(seat)
            state = alone.get(key, np.zeros((1, 8), np.float32))
            mask = infos["action_mask"][game, seat][None]
            (move,), alone[key] = act(seen[game, seat][None].copy(), mask, state)
            assert move == actions[game, seat]
            kept.add(key[0])
        seen, _, _, _, infos = vector.step(actions)
    assert len(kept) > 2


@pytest.fixture(scope="module")
def exported(ray_with_games: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained policy.onnx, from ``train``, resumed once."""
    folder = tmp_path_factory.mktemp("runs")
    small = {
        "channels": "[8]", "strides": "[2]", "hidden_size": "16", "num_envs_per_env_runner": "8",
        "ladder_cpu_fraction": "0.5", "min_time_s_per_iteration": "1",
    }  # fmt: skip
    command = ["--experiment", "blackout", "--board-size", "7", "--seed", "3", "--gru-size", "8"]
    for name, value in small.items():
        path = name if name[:3] in ("num", "lad", "min") else f"model_config.{name}"
        command += [f"--rl.training.config.{path}", value]
    command += ["--num-env-runners", "0", "--runs-dir", str(folder)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder_evaluator, "MIN_MEASUREMENT_S", 0.0)
        for iterations in ("1", "3"):
            assert main([*command, "--num-iters", iterations]) == 0
    return folder / "blackout"


def test_a_run_resumes_and_is_placed_on_the_ladder(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [float(row["env_steps"]) for row in progress_csv.rows(exported)]
    assert len(steps) > 2
    assert steps == sorted(set(steps))
    metadata = json.loads((exported / "model" / "policy.json").read_text())
    assert metadata["training"]["algorithm"] == "RecurrentPPO"
    assert metadata["strength"]["games"] > 0
    words = ["--opponents", ",".join(["hungry-blackout"] * 3), "--games", "4", "--json"]
    for path in (exported, exported / "model" / "policy.onnx"):
        assert evaluate_command.main([str(path), *words]) == 0
        assert json.loads(capsys.readouterr().out)["opponents"] == ["hungry-blackout"] * 3


def test_the_file_has_the_scores_of_the_network_over_a_sequence(tmp_path: Path) -> None:
    made, path = network(), tmp_path / "policy.onnx"
    write_onnx(made, (10, 7, 7), path)
    expected, found = as_score_fn(made), onnx_score_fn(path.read_bytes(), path)
    random = np.random.default_rng(2)
    states = [np.zeros((5, 8), np.float32)] * 2
    for _ in range(20):
        frames = random.integers(256, size=(5, 10, 7, 7)).astype(np.uint8)
        wanted, states[0] = expected(frames, states[0])
        scores, states[1] = found(frames, states[1])
        np.testing.assert_allclose(scores, wanted, atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(states[1], states[0], atol=1e-4)
    assert not np.allclose(wanted, expected(frames, np.zeros((5, 8), np.float32))[0], atol=1e-2)

    games = VectorBattlesnake(16, 3, 7, 7, settings={"view_radius": 2})
    check_in_games(path, expected, games)
    model = onnx.load(path)
    for weights in model.graph.initializer:
        if weights.name == "gru.weight_hh_l0":
            weights.raw_data = (onnx.numpy_helper.to_array(weights) * 1.5).tobytes()
    onnx.save(model, path)
    with pytest.raises(PolicyError, match="differs by"):  # The first turn does not show it.
        check_in_games(path, expected, games)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent policy.onnx for boards of 7x7, with limited view."""
    return save_policy(tmp_path_factory.mktemp("policy"), network(), 7)


def save_policy(folder: Path, made: Any, size: int) -> Path:
    """Save a network as a policy.onnx for square boards with ``size`` cells per side."""

    def write(draft: Path) -> dict[str, Any]:
        write_onnx(made, (10, size, size), draft)
        games = {"ruleset": "standard", "map": "standard"}
        return {
            "observation": observations.get("planes").to_dict(),
            "board_sizes": [[size, size]],
            "training": {"env_config": games},
        }

    path = folder / "policy.onnx"
    policy_file.save(path, write)
    return path


def start(number: int) -> Board:
    """The start of a game with limited view, and a timeout that a busy machine keeps."""
    settings = Settings(view_radius=2, food_spawn_chance=30)
    game = Game(seed=number, id=str(number), settings=settings, timeout=10_000)
    return Board.new(7, 7, ["me", "it"], game=game)


def moves_of(play: Callable[[Board], str], boards: list[Board]) -> list[list[str]]:
    """The moves of ``play`` in games that take turns."""
    moves: list[list[str]] = [[] for _ in boards]
    for _ in range(12):
        for played, board in zip(moves, boards, strict=True):
            if not board.is_over():
                played.append(play(board))
                other = (board.safe_moves("it") or ["up"])[board.turn % 2 - 1]
                board.step({"me": played[-1], "it": other})
    return moves


def test_interleaved_games_are_served_like_each_game_alone(policy: Path) -> None:
    def play(boards: list[Board]) -> list[list[str]]:
        client = create_app({"POLICY": str(policy)}).test_client()

        def post(board: Board) -> str:
            body = limit_view(board.to_api("me"), 2)
            first, second = (client.post("/move", json=body).get_json()["move"] for _ in range(2))
            assert first == second
            return str(first)

        return moves_of(post, boards)

    together = play([start(number) for number in range(1, 17)])
    assert together == [play([start(number)])[0] for number in range(1, 17)]
    assert len({tuple(moves) for moves in together}) > 4


def test_interleaved_games_of_the_experiment_need_less_than_50_ms(tmp_path: Path) -> None:
    settings = network_settings({"gru_size": 128, "head_crop": 11}) | {"head_plane": 6}
    made = _RecurrentPolicyNetwork((10, 15, 15), 4, **settings).eval()
    path = save_policy(tmp_path, made, 15)
    client = create_app({"POLICY": str(path)}).test_client()
    boards = [
        Board.new(15, 15, ["me", "a", "b", "c"], game=Game(seed=number, id=str(number)))
        for number in range(1, 65)
    ]
    cpu_seconds = []
    for _ in range(6):
        for board in boards:
            body = limit_view(board.to_api("me"), 5)
            began = time.process_time()
            move = client.post("/move", json=body).get_json()["move"]
            cpu_seconds.append(time.process_time() - began)
            others = {name: (board.safe_moves(name) or ["up"])[0] for name in "abc"}
            board.step({"me": move, **others})
    assert np.percentile(cpu_seconds[64:], 99) < 0.05


def test_a_seated_policy_has_the_moves_of_the_live_snake(policy: Path) -> None:
    """The arena and opponents in training evaluate all seats in one call."""
    vector = VectorBattlesnake(40, 2, 7, 7, max_turns=9, settings={"view_radius": 2})
    opponents = SeatedOpponents(vector)
    for game, seat in np.ndindex(40, 2):
        opponents.assign(game, seat, str(policy), 0)
    infos = vector.reset(seed=5)[1]
    snakes: dict[tuple[int, ...], Any] = {}
    compared = 0
    for _ in range(20):
        actions = np.zeros((40, 2), np.uint8)
        opponents.move(actions, infos["alive"])
        for game, seat in np.argwhere(infos["alive"] & infos["action_mask"].any(-1)):
            board = Board.from_state(vector.games.state(int(game)), vector.game)
            board.you_id = board.snakes[seat].id
            key = int(vector.episodes[game]), int(game), int(seat)
            snake = snakes.setdefault(key, open_factory(str(policy))(0))
            decision = snake(board.limited())
            assert decision.move == MOVES[actions[game, seat]]
            compared += 1
        infos = vector.step(actions)[4]
        opponents.after_step(infos)
    assert compared > 500
    assert len({episode for episode, _, _ in snakes}) > 1
