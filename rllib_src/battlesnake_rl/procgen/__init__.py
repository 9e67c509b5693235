"""Procgen's 16 games on Ray RLlib: environments, the IMPALA network, experiments and rollouts."""
