#!/bin/sh
# SageMaker sends SIGTERM to the first process alone, and two minutes later SIGKILL to all (a spot
# instance is taken away, or the job is stopped). tini passes it on to all; sagemaker-training, which
# would end at once and take the container with it, does not listen to it; the training script does,
# writes a checkpoint and ends.
trap '' TERM
[ "$(id -u)" = 0 ] || exec tini -g -- "$@"
# Nothing trains as root: /opt/ml goes to the user 10001, and no way leads back.
chown -R 10001:10001 "${SAGEMAKER_BASE_DIR:-/opt/ml}" 2> /dev/null
export HOME=/home/trainer
exec setpriv --reuid=10001 --regid=10001 --clear-groups --inh-caps=-all --no-new-privs \
    tini -g -- "$@"
