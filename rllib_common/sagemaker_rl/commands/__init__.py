"""Commands of `battlesnake-gym` that this package defines, one module per command."""
