"""Entry point of ``python -m battlesnake_gym``: the command ``battlesnake-gym``."""

import sys

from battlesnake_gym.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
