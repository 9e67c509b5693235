"""Simulator of SageMaker on this machine: training jobs, tuning jobs and SDK session."""
