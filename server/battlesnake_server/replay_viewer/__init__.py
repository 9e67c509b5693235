"""Recorded games for the pages: download, streaming, player and analysis."""
