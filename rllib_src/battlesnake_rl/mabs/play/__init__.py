"""What training plays: environments, opponents, past selves, and counts of games."""
