"""From a SageMaker job, or a laptop, to a Ray experiment: what a training script subclasses."""

import os
import sys

if sys.version_info < (3, 11):  # noqa: UP036  (this is where an old one is noticed)
    raise ImportError(
        f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, and training needs 3.11; "
        "SageMaker's own RLlib images are too old: give the estimator the image_uri of an image "
        "built from deployment/training/Dockerfile"
    )

# Before torch and Ray are imported. Threads that wait for each other by spinning stall as soon as
# another process needs a core, so each process has one thread unless the user says otherwise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
