"""Tests of the MXNet baseline."""
