"""Batch engines in C and Python.

One call plays one turn of thousands of games.
"""
