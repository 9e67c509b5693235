# Live snake for Fargate: docs/how-to/create-aws-stacks.md. The build context is a directory with policy.onnx and
# policy.json, or an empty one:
#
#   docker build -f deployment/server/Dockerfile -t battlesnake .
#   docker build -f deployment/server/aws.Dockerfile -t snake runs/first/model

ARG BATTLESNAKE=battlesnake
FROM $BATTLESNAKE
COPY . /policy/
