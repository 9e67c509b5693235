"""From a SageMaker job, or a laptop, to a Ray experiment: what a training script subclasses."""

import os

# Before torch and Ray are imported. Threads that wait for each other by spinning stall as soon as
# somebody else needs a core, so there is one a process unless the user says otherwise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
