"""Snakes on the network: the live snake (Flask) and the arena (referee, ratings, stored games)."""
