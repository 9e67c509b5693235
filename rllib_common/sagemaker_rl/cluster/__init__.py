"""Instances that find each other and become one Ray."""
