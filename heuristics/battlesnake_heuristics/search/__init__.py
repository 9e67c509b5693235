"""Python package of the C search, its learned evaluations and self-play games."""
