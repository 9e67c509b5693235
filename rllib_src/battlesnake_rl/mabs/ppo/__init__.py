"""PPO on our own runners."""
