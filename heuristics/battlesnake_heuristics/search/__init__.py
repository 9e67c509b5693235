"""The search in C: Python bindings, evaluations and self-play games."""
