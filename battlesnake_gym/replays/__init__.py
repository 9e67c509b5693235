"""Recorded games in this project's format and in the official CLI's format."""
