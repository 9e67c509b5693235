"""Training runs as read from their directories: a table, charts and a report."""
