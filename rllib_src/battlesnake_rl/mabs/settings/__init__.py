"""Typed settings of the training algorithms, without torch and Ray."""
