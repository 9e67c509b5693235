"""The ``battlesnake-gym`` console command; no other package imports it."""
