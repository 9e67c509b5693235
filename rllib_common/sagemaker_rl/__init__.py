"""Run a training script as a SageMaker job, on a laptop or on a Ray cluster.

A training script subclasses `sagemaker_rl.ray_launcher.SageMakerRayLauncher`.
"""

import os
import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (a job's image may have an older Python)
    raise ImportError(
        f"this is Python {sys.version_info[0]}.{sys.version_info[1]}, and training needs 3.11; "
        "SageMaker's own RLlib images are too old: give the estimator the image_uri of an image "
        "built from deployment/training/Dockerfile"
    )

# A SageMaker job copies each dependency beside the script, so `battlesnake_heuristics` lies in a
# folder `heuristics` there. No clone and no installation has such a folder beside this package.
_HEURISTICS = Path(__file__).resolve().parent.parent / "heuristics"
if _HEURISTICS.is_dir() and str(_HEURISTICS) not in sys.path:
    sys.path.insert(0, str(_HEURISTICS))

# Before torch and Ray are imported. Threads that wait for each other by spinning stall as soon as
# another process needs a core, so each process has one thread unless the user says otherwise.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
