"""Command modules of this package: one module per ``battlesnake-gym`` command."""
