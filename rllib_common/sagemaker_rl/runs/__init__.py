"""Training runs and the files in their directories: curves, checkpoints, games and status."""
