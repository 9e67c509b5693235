"""Parts of a training job: hyperparameters, directories, sources and checks."""
