"""Snakes that think without learning, and the rules that they are made of."""

from heuristics import named as named
from heuristics.filters import FILTERS, SAFE
from heuristics.pipeline import (
    Filter,
    Pipeline,
    Preference,
    When,
    explain,
    filtered,
    mask,
)
from heuristics.view import View

__all__ = [
    "FILTERS",
    "SAFE",
    "Filter",
    "Pipeline",
    "Preference",
    "View",
    "When",
    "explain",
    "filtered",
    "mask",
]
