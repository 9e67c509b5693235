"""Experiments, networks and callbacks in the format of the starter kit.

The kit was the starter kit of the Procgen competition.
"""
