"""Training job: hyperparameters, directories, sources, data and checks."""
