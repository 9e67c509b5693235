"""Recorded games for the pages: fetching, streaming, exporting and analyzing."""
