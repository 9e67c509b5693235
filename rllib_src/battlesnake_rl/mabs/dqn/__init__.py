"""DQN and APEX: env runner, replay buffer and learner."""
