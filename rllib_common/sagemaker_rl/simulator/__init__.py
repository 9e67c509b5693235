"""Simulation of SageMaker on this machine: training jobs, tuning jobs and the SDK's session."""
