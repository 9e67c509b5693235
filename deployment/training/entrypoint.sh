#!/bin/sh
# SageMaker sends SIGTERM to the first process alone, and two minutes later SIGKILL to all (a spot
# instance is taken away, or the job is stopped). tini passes it on to all; sagemaker-training, which
# would end at once and take the container with it, does not listen to it; the training script does,
# writes a checkpoint and ends.
trap '' TERM
exec tini -g -- "$@"
