"""Training script that only counts: one "iteration" is one task on every CPU of the cluster.

The cluster is real. RLlib is left out, because it starts slowly.
"""

import dataclasses
import json
import os
import signal
import sys
import time

import ray

from sagemaker_rl.cluster.membership import ClusterError, ClusterHyperparameters, Membership
from sagemaker_rl.cluster.rendezvous import STOPPED_EXIT_STATUS
from sagemaker_rl.cluster.roles import run_head, run_worker
from sagemaker_rl.job.job_environment import log_line, report_failure


@ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
def node_id() -> str:
    time.sleep(0.3)
    return str(ray.get_runtime_context().get_node_id())


def count(settings: ClusterHyperparameters, membership: Membership, num_iters: int) -> int:
    told: list[int] = []
    with run_head(membership, settings) as leader:
        signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
        for iteration in range(1, num_iters + 1):
            cpus = int(ray.cluster_resources()["CPU"])
            nodes = ray.get([node_id.remote() for _ in range(cpus)])
            log_line(f"training_iteration={iteration} nodes={len(set(nodes))} cpus={cpus}")
            if told:
                leader.end_run()
                return STOPPED_EXIT_STATUS
    return 0


def main() -> int:
    values = json.loads(os.environ["SM_HPS"])
    names = {field.name for field in dataclasses.fields(ClusterHyperparameters)}
    settings = ClusterHyperparameters(**{k: v for k, v in values.items() if k in names})
    membership = Membership.from_environment(settings)
    try:
        if membership.is_head:
            return count(settings, membership, values["num_iters"])
        return run_worker(membership, settings)
    except ClusterError as error:
        report_failure(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
