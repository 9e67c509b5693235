"""Recorded games: readers and writers for this project's format and the official CLI's format."""
