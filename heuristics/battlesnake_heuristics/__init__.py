"""Rule-based and searching snakes, and the analysis and ratings of snakes."""

from battlesnake_heuristics import builtin_snakes
from battlesnake_heuristics.rule_based.filters import FILTERS, SAFE
from battlesnake_heuristics.rule_based.pipeline import (
    Filter,
    Pipeline,
    Preference,
    When,
    best_after_filters,
    explain,
    filter_mask,
    to_mask_function,
)
from battlesnake_heuristics.rule_based.view import View

__all__ = [
    "FILTERS",
    "SAFE",
    "Filter",
    "Pipeline",
    "Preference",
    "View",
    "When",
    "best_after_filters",
    "builtin_snakes",
    "explain",
    "filter_mask",
    "to_mask_function",
]
