"""Simulator of SageMaker: training jobs, tuning jobs and SDK session.

All simulated jobs run on this machine.
"""
