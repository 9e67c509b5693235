"""How strong a policy is: matches, the ladder beside a training, games to look at."""
