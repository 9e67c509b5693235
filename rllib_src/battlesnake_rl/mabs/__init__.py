"""Training on Ray RLlib: environments, networks, algorithms and experiments."""
