"""Entry point of ``python -m battlesnake_gym``: the command ``battlesnake-gym``."""

import sys

from battlesnake_gym.cli.main import main

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # The working directory may contain a file with the name of a package.
    sys.exit(main())
