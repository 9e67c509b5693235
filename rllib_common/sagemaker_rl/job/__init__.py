"""Before training starts, and around it: settings, folders, sources and data of a job."""
