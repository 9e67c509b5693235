"""What the baseline learns, and that its exported network says the same; run beside MXNet."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

RunInMXNet = Callable[[str], str]

BASELINE = """
import json
import numpy as np
from mxnet import nd
from battlesnake_rl.mxnet_baseline.mxnet_dqn import Baseline
from battlesnake_rl.mxnet_baseline.mxnet_settings import OBSERVATION, Settings

env_config = {"num_snakes": 2, "width": 5, "height": 5, "observation": OBSERVATION}
baseline = Baseline(env_config, Settings(batch_size=8, gamma=0.5, tau=TAU, lr=5e-3), seed=3)
"""


def test_the_examples_of_the_modules_that_need_mxnet(run_in_mxnet: RunInMXNet) -> None:
    script = """
import doctest
from battlesnake_rl.mxnet_baseline import mxnet_dqn as dqn, mxnet_export as export, mxnet_network as network, mxnet_worker as worker

modules = dqn, export, network, worker
print(sum(doctest.testmod(module, raise_on_error=True).attempted for module in modules))
"""
    assert int(run_in_mxnet(script)) > 0


def test_values_become_reward_and_half_of_what_follows(run_in_mxnet: RunInMXNet) -> None:
    # Two places: "here", where each move ends the game with its number as reward, and "there", from
    # which each move leads here for nothing. Here only the moves 0 and 2 are allowed.
    script = """
here = np.zeros(baseline.seen.shape[1:], np.uint8)
there = np.full(baseline.seen.shape[1:], 50, np.uint8)
memory = baseline.memories[0]
allowed = np.array([True, False, True, False])
for move in range(4):
    memory.add(here, move, float(move), here, allowed, True)
    memory.add(there, move, 0.0, here, allowed, False)
for _ in range(250):
    baseline.learn(memory)
print(json.dumps(baseline.network(nd.array(np.stack([here, there]))).asnumpy().tolist()))
"""
    here, there = json.loads(run_in_mxnet(BASELINE.replace("TAU", "0.3") + script))
    np.testing.assert_allclose(here, [0, 1, 2, 3], atol=0.25)
    np.testing.assert_allclose(there, [1, 1, 1, 1], atol=0.25)


def test_the_target_follows_slowly(run_in_mxnet: RunInMXNet) -> None:
    script = """
def weights(network):
    return [parameter.data().asnumpy() for parameter in network.collect_params().values()]

before = weights(baseline.target)
assert all(np.array_equal(a, b) for a, b in zip(before, weights(baseline.network)))
for _ in range(40):
    baseline.play_turn()
baseline.learn(baseline.memories[0])
for old, new, ours in zip(before, weights(baseline.target), weights(baseline.network)):
    np.testing.assert_allclose(new, 0.9 * old + 0.1 * ours, atol=1e-6)
print(max(abs(a - b).max() for a, b in zip(before, weights(baseline.target))))
"""
    assert float(run_in_mxnet(BASELINE.replace("TAU", "0.1") + script)) > 0


def test_the_memory_forgets_the_oldest(run_in_mxnet: RunInMXNet) -> None:
    script = """
from battlesnake_rl.mxnet_baseline.mxnet_dqn import Memory
memory = Memory(3, (1,))
for move in range(5):
    memory.add([move], move % 4, move, [move + 1], [True] * 4, False)
print(json.dumps([len(memory), sorted(memory.reward.tolist()), memory.seen_then[:, 0].tolist()]))
"""
    assert json.loads(run_in_mxnet(BASELINE.replace("TAU", "1") + script)) == [
        3,
        [2.0, 3.0, 4.0],
        [4, 5, 3],
    ]


def test_the_exported_network_says_the_same(run_in_mxnet: RunInMXNet, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra server")
    from battlesnake_rl.mxnet_baseline.mxnet_algorithm import write_onnx

    script = f"""
from pathlib import Path
for _ in range(30):
    baseline.play_turn()
boards = []
while len(boards) < 33:
    baseline.play_turn()
    boards += [seen for seen, alive in zip(baseline.seen, baseline.alive) if alive]
baseline.save(Path({str(tmp_path)!r}))
np.save({str(tmp_path / "boards.npy")!r}, boards)
np.save({str(tmp_path / "values.npy")!r}, baseline.network(nd.array(np.stack(boards))).asnumpy())
"""
    run_in_mxnet(BASELINE.replace("TAU", "1") + script)
    boards, values = np.load(tmp_path / "boards.npy"), np.load(tmp_path / "values.npy")
    assert boards.dtype == np.uint8
    assert np.ptp(values, axis=0).min() > 1e-3  # they do tell boards apart
    versions = write_onnx(tmp_path, list(boards.shape[1:]), tmp_path / "policy.onnx")
    assert versions["mxnet"] == "1.9.1"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 1
    session = onnxruntime.InferenceSession(
        tmp_path / "policy.onnx", options, providers=["CPUExecutionProvider"]
    )
    for count in (1, len(boards)):
        (exported,) = session.run(["q_values"], {"observations": boards[:count]})
        np.testing.assert_allclose(exported, values[:count], atol=1e-5)
