"""Training runs and their files: curves, checkpoints, games and run status."""
