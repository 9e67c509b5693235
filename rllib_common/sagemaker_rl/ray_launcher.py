"""`battlesnake_rl.launcher.ray_launcher`, under the starter pack's name."""

from battlesnake_rl.launcher.ray_launcher import Hyperparameters, SageMakerRayLauncher

__all__ = ["Hyperparameters", "SageMakerRayLauncher"]
