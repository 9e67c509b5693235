"""Environments: arrays, Gymnasium's vector form of them, one game, PettingZoo."""
