"""Readers and writers of recorded games.

The formats are this project's format and the format of the official CLI.
"""
