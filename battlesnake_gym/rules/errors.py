"""Exception raised by the rules."""


class RulesError(ValueError):
    """Error for invalid input of the rules.

    The message contains the field, the value and a remedy.
    """
