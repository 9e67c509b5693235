# The live snake for AWS: docs/aws.md. One image for Lambda and Fargate. The
# folder that it is built from holds policy.onnx and policy.json, or nothing:
#
#   docker build -f deployment/server/Dockerfile -t battlesnake .
#   docker build -f deployment/server/aws.Dockerfile -t snake runs/first/model

ARG BATTLESNAKE=battlesnake
FROM $BATTLESNAKE
USER 0
# Lambda talks to its runtime client.
RUN /snake/bin/pip install --no-cache-dir --require-hashes -r /snake/requirements-aws.txt
COPY . /policy/
USER 10001
