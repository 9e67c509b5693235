"""Analysis of positions and games: win probabilities, mistakes, lost games, scenarios."""
