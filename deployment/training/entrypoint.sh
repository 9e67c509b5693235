#!/bin/sh
# When a job is stopped or a spot instance is interrupted, SageMaker sends SIGTERM only to the first
# process, and SIGKILL to all two minutes later. tini forwards SIGTERM to all processes.
# sagemaker-training must ignore SIGTERM, because the exit of this process would end the container
# immediately. The training script handles SIGTERM: the script writes a checkpoint and exits.
trap '' TERM
[ "$(id -u)" = 0 ] || exec tini -g -- "$@"
# The training never runs as root. The user 10001 owns /opt/ml and cannot regain privileges.
chown -R 10001:10001 "${SAGEMAKER_BASE_DIR:-/opt/ml}" 2> /dev/null
export HOME=/home/trainer
exec setpriv --reuid=10001 --regid=10001 --clear-groups --inh-caps=-all --no-new-privs \
    tini -g -- "$@"
