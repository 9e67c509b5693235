"""Training environments, opponents and board size schedules."""
