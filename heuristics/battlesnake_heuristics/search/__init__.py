"""The search in C: its face, its evaluation, its games against itself."""
