"""Exception that the rules raise."""


class RulesError(ValueError):
    """Error for invalid arguments or positions.

    The message contains the field, the value and a remedy.
    """
