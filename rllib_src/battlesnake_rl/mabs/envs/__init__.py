"""Training environments, opponents in training games, and board size schedules."""
