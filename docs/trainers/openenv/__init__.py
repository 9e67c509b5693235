"""Battlesnake duels against named snakes, as an OpenEnv environment."""
