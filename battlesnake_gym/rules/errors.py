"""Exception raised by the rules."""


class RulesError(ValueError):
    """Error for invalid input; the message gives the field, its value and the remedy."""
