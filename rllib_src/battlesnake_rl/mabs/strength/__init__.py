"""Strength of policies: batched games, ladder evaluation and sample games."""
