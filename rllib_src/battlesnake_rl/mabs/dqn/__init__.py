"""DQN and APEX: runners, replay, learners."""
