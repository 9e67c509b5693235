"""Example of user-defined callbacks: the number of completed levels per episode.

To use the callbacks, set ``callbacks: level_counter`` in an experiment. Each file in this folder
contains one subclass of RLlib's ``RLlibCallback``. RLlib reports the metrics of the callbacks under
``env_runners/`` and in TensorBoard.
"""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback


class LevelCounter(RLlibCallback):  # type: ignore[misc]
    """Callbacks that log the mean number of completed levels per episode.

    The metric's name is ``levels_completed``.
    """

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Log the number of completed levels of an episode that has just ended."""
        completed = sum(bool(info["prev_level_complete"]) for info in episode.get_infos())
        metrics_logger.log_value("levels_completed", completed, reduce="mean", window=100)
