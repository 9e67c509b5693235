"""DISTIL: a policy learns to imitate the search."""
