"""An example of callbacks of your own: how many levels were completed, and on how many.

Write ``callbacks: level_counter`` into an experiment. A file here holds one subclass of RLlib's
``RLlibCallback``; what it logs is in the results under ``env_runners/`` and in TensorBoard.
"""

from __future__ import annotations

from typing import Any

from ray.rllib.callbacks.callbacks import RLlibCallback


class LevelCounter(RLlibCallback):  # type: ignore[misc]
    """Logs ``levels_completed``, the mean number of completed levels an episode."""

    def on_episode_end(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
        """Look through the infos of the episode that has ended."""
        completed = sum(bool(info["prev_level_complete"]) for info in episode.get_infos())
        metrics_logger.log_value("levels_completed", completed, reduce="mean", window=100)
