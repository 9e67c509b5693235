"""The learner's interface to the game: observations, action masks and rewards."""
