"""Recorded games: ours, the official form, and the reference engine's recordings."""
