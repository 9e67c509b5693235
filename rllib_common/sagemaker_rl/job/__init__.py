"""Parts of a training job: hyperparameters, directories, source files, channels and checks."""
