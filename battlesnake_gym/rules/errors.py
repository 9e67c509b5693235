"""The exception that the rules raise."""


class RulesError(ValueError):
    """Invalid input to the rules; the message gives the field, its value and the remedy."""
