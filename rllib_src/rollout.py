"""Let a trained agent play Procgen; see ``--help``, or ``docs/procgen.md``."""

from procgen_rllib.rollout import main

if __name__ == "__main__":
    raise SystemExit(main())
