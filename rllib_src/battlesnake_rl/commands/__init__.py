"""The commands of `battlesnake-gym` that this package provides, one module each."""

import sagemaker_rl as _process_defaults  # noqa: F401  (it must come before torch and Ray)
