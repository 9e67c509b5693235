"""Train a snake; see ``--help``, or ``docs/training.md``."""

from mabs.launcher import main

if __name__ == "__main__":
    raise SystemExit(main())
