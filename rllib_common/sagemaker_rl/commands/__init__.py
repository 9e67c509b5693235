"""Commands of `battlesnake-gym` in this package, one module each."""
