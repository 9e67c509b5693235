"""Helpers for all packages: command line, files, extensions, suggestions and run directories."""
