"""Simulation of SageMaker on this machine: jobs, tuning jobs and SDK session."""
