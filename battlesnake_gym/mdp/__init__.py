"""Observations, action masks and rewards of a learner."""
