"""Snakes made of rules: views of a board, filters, preferences, pipelines of both."""
