"""The commands of `battlesnake-gym` in this package, one module per command."""
