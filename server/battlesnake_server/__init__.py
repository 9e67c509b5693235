"""Battlesnake servers: the live snake and the arena.

The live snake is a Flask application. The arena consists of a referee, ratings and stored games.
"""
