"""What all packages use: nearest names, whole files, your own files, the command line."""
