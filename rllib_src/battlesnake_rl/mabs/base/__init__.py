"""Env runners, learners, settings and ladder evaluation of all algorithms."""
