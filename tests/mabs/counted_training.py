"""``train-mabs.py --ray-address`` that also counts APEX's work independently of its metrics.

In the folder ``COUNTS`` every process leaves a file ``KIND-ADDRESS-PID`` with a line of JSON for
each fragment that it played (``played``) or stored in a replay (``stored``), and for each batch
that it learned from (``learned``).
"""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import ray

from battlesnake_rl.mabs.base.fragment import Fragment
from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeLauncher
from battlesnake_rl.mabs.dqn import apex, replay_shard
from battlesnake_rl.mabs.dqn.dqn import DQNEnvRunner
from battlesnake_rl.mabs.dqn.replay_shard import _ReplayBufferShard

COUNTS = os.environ.get("COUNTS", "")


def note(kind: str, **facts: Any) -> None:
    path = Path(COUNTS) / f"{kind}-{ray.util.get_node_ip_address()}-{os.getpid()}"
    with path.open("a") as file:
        file.write(json.dumps(facts) + "\n")


def note_fragment(kind: str, fragment: Fragment) -> None:
    played = b"".join(fragment.columns[name].tobytes() for name in ("obs", "actions"))
    note(
        kind,
        digest=hashlib.sha1(played).hexdigest(),
        env_steps=fragment.num_env_steps,
        agent_steps=fragment.num_agent_steps,
    )


class CountedRunner(DQNEnvRunner):
    def sample_fragment(self) -> tuple[Fragment, dict[str, Any]]:
        fragment, info = super().sample_fragment()
        note_fragment("played", fragment)
        return fragment, info


class CountedShard(_ReplayBufferShard):
    def add(self, fragment: Fragment) -> None:
        super().add(fragment)
        note_fragment("stored", fragment)


class CountedAPEX(apex.APEX):
    def _run_update(self, columns: Any) -> Any:
        learned = super()._run_update(columns)
        note("learned", transitions=len(columns["actions"]))
        return learned


class Launcher(BattlesnakeLauncher):
    def get_experiment_config(self, hyperparameters: Any) -> Any:
        config = super().get_experiment_config(hyperparameters)
        if config.algo_class is apex.APEX:
            config.algo_class = CountedAPEX
            config.env_runner_cls = CountedRunner
        return config


if __name__ == "__main__":
    # The driver makes the shards.
    replay_shard._ReplayBufferShard = CountedShard  # type: ignore[misc]
    sys.exit(Launcher.train_main(["--ray-address", os.environ["CLUSTER"]]))
