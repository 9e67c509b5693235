"""Before training starts, and around it: settings, folders, sources, data and speed of a job."""
