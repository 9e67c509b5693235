"""Tests of the benchmarks whose figures the documentation shows."""
