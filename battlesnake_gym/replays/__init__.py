"""Recorded games: ours, and the official form."""
