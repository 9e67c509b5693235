"""Before training starts, and around it: settings, folders, sources, data and costs of a job."""
