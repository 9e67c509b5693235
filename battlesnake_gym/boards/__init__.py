"""Boards: one game as an object, its JSON and text formats, and sets of cells."""
