"""One Ray node of a test's cluster: starts as the environment says and runs until it is ended."""

import os
import signal

from sagemaker_rl.cluster.ray_node import RayNode
from sagemaker_rl.job.job_environment import log_line

PORT = 6379
"""Of the head, in a network namespace of its own."""


def main() -> None:
    address, head = os.environ["NODE_ADDRESS"], os.environ["HEAD_ADDRESS"]
    cpus = int(os.environ["NODE_CPUS"])
    if address == head:
        node = RayNode.create_head(address, PORT, cpus)
    else:
        node = RayNode.create_worker(address, f"{head}:{PORT}", cpus)
    node.start()
    log_line("the node has started")
    signal.pause()


if __name__ == "__main__":
    main()
