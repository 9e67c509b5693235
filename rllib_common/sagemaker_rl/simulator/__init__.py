"""SageMaker rehearsed on this machine: its jobs, its tuning and its SDK's session."""
