"""In a SageMaker job: the folder that the starter pack calls ``sagemaker_rl``.

A job copies each dependency flat beside the training script. Importing this package makes the
packages in those folders importable, so that a script of the starter pack finds the launcher under
the name that it knows: ``from sagemaker_rl.ray_launcher import SageMakerRayLauncher``. In a clone
and in an installation the launcher is `battlesnake_rl.launcher`, and this package is not there.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

for folder in (HERE.parent / "heuristics", HERE):
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
