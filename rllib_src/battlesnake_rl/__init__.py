"""Reinforcement learning with Ray RLlib, for Battlesnake and Procgen."""
