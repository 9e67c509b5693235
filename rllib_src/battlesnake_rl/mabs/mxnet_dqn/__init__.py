"""MXNET: the DQN of the SageMaker starter pack, written in MXNet, as a baseline."""
