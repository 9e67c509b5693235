"""Environments: games as numpy arrays, for Gymnasium and for PettingZoo."""
