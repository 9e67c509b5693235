"""Environment of a training job: hyperparameters, directories, sources, data and checks."""
