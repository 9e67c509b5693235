"""Recorded games: fetched, shown a piece at a time, exported, analysed, and learned from."""
