"""Batch engine in C, and in Python, that plays thousands of games in one call."""
