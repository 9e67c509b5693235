"""What a learner sees, may do and gets: observations, masks, rewards."""
