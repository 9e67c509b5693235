"""Training on Ray RLlib: networks, runners, replay, DQN and APEX, export."""

import sagemaker_rl as _process_defaults  # noqa: F401  (it must come before torch and Ray)
