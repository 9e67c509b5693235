"""PPO on batches of games, and RLlib's PPO with ladder evaluation."""
