"""Views of training runs: a table, charts and a report."""
