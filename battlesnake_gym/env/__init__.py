"""Environments: games as arrays, and the interfaces of Gymnasium and PettingZoo."""
