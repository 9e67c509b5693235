"""A training run and what it leaves in its folder: curves, checkpoints, games, its state."""
