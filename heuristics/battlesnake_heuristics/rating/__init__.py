"""Playing strength of snakes: matches, sequential tests and the Elo ladder."""
