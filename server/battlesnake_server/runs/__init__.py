"""Training runs as their folders show them: a table, curves, a report. Files are only read."""
