"""The ``battlesnake-gym`` console command.

No other package imports this package.
"""
