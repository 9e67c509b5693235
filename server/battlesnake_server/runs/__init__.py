"""Training runs as their folders tell of them: a table, curves, a report. Files are only read."""
