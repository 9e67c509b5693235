"""Batch engines in C and Python, which play one turn of thousands of games in one call."""
