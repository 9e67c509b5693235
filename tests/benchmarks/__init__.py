"""Tests of the benchmark commands."""
