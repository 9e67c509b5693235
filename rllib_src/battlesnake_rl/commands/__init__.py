"""Commands of `battlesnake-gym` that this package provides, one module each."""
