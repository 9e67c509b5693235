# The live snake for Fargate: docs/aws.md. The folder that it is built from
# holds policy.onnx and policy.json, or nothing:
#
#   docker build -f deployment/server/Dockerfile -t battlesnake .
#   docker build -f deployment/server/aws.Dockerfile -t snake runs/first/model

ARG BATTLESNAKE=battlesnake
FROM $BATTLESNAKE
COPY . /policy/
