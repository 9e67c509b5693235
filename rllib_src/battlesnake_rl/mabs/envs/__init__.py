"""What training plays: environments, opponents, and counts of games."""
