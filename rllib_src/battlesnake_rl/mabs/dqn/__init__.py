"""DQN and APEX: runners, replay, learners; `batched` has what PPO shares with them."""
