"""Training runs and their files: curves, checkpoints, recorded games and run status."""
