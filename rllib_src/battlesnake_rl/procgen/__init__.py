"""Procgen's 16 games on Ray RLlib."""
