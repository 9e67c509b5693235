# The live snake for AWS: docs/aws.md. One image for Lambda, Fargate and SageMaker endpoints. The
# folder that it is built from holds policy.onnx and policy.json, or nothing:
#
#   docker build -f deployment/server/Dockerfile -t battlesnake .
#   docker build -f deployment/server/aws.Dockerfile -t snake runs/first/model

ARG BATTLESNAKE=battlesnake
FROM $BATTLESNAKE
USER 0
# Lambda talks to its runtime client. SageMaker runs the command `serve`, and asks on port 8080.
RUN /snake/bin/pip install --no-cache-dir --require-hashes -r /snake/requirements-aws.txt
RUN printf '#!/bin/sh\nexec battlesnake-gym serve --host 0.0.0.0 --port 8080\n' > /snake/bin/serve && chmod 755 /snake/bin/serve
COPY . /policy/
USER 10001
