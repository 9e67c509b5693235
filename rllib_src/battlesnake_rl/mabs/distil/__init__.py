"""DISTIL: a policy that learns to imitate the search."""
