"""Experiments, networks and callbacks in the format of the competition's starter kit."""
