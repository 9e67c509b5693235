"""Procgen's 16 games on Ray RLlib: environments, the IMPALA network, experiments, rollouts."""

# First of all, before anything imports torch: it keeps torch's waiting threads from spinning.
import sagemaker_rl as _process_defaults  # noqa: F401
