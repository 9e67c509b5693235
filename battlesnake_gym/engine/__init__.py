"""The batch engine: the rules for thousands of games at once, in C and in Python."""
