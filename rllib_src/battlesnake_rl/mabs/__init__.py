"""Training on Ray RLlib: networks, runners, replay, DQN and APEX, export."""

import battlesnake_rl.launcher as _process_defaults  # noqa: F401  (it must come before torch and Ray)
