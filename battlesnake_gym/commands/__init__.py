"""Command modules of this package: each module implements one ``battlesnake-gym`` command."""
