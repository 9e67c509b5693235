"""Experiments, networks and callbacks in the format of the starter kit.

The starter kit belongs to the Procgen competition at NeurIPS 2020.
"""
