"""The one error of the rules."""


class RulesError(ValueError):
    """What the rules refuse: the message names the field, its value and the remedy."""
