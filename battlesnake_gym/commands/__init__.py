"""Modules with one command of ``battlesnake-gym`` each, provided by this package."""
