"""Duels against built-in snakes as an OpenEnv environment."""
