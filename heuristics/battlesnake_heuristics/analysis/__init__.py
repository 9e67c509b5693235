"""Analysis of positions and games, from win probabilities to scenarios."""
