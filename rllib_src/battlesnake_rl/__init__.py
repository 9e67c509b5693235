"""Reinforcement learning on Ray RLlib: Battlesnake (`mabs`) and Procgen (`procgen`)."""
