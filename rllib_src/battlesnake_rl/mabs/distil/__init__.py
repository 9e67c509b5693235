"""DISTIL: a policy learns to prefer what the search prefers."""
