"""Package that runs training scripts locally, on a Ray cluster or in SageMaker.

A training script subclasses `sagemaker_rl.ray_launcher.SageMakerRayLauncher`.
"""

import sys
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036  (a job's image may have an older Python)
    raise ImportError(
        f"training needs Python 3.11, got {sys.version_info[0]}.{sys.version_info[1]}; "
        "SageMaker's own RLlib images are too old: set the estimator's image_uri to an image "
        "built from deployment/training/Dockerfile"
    )

# SageMaker copies each dependency next to the script. In a job, the folder `heuristics` therefore
# contains `battlesnake_heuristics`. Clones and installations have no such folder next to this
# package.
_HEURISTICS_DIR = Path(__file__).resolve().parent.parent / "heuristics"
if _HEURISTICS_DIR.is_dir() and str(_HEURISTICS_DIR) not in sys.path:
    sys.path.insert(0, str(_HEURISTICS_DIR))
