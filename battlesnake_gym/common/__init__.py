"""Helpers for all packages: command line, files, extensions and run directories."""
