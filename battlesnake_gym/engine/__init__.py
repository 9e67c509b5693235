"""The rules for thousands of games at once: the engine in C and its plain form in Python."""
