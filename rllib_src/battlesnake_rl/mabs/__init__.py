"""Training on Ray RLlib: networks, runners, replay, DQN and APEX, export."""
