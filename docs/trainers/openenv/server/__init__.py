"""OpenEnv server for duels against built-in snakes."""
