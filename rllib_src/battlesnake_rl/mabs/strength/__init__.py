"""Strength of policies: games in parallel, ladder evaluation and sample games."""
