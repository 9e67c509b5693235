"""Train an agent on a Procgen game; see ``--help``, or ``docs/procgen.md``."""

from procgen_rllib.launcher import main

if __name__ == "__main__":
    raise SystemExit(main())
