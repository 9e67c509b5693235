"""Let a trained agent play Procgen; see ``--help``, or ``docs/procgen.md``."""

from battlesnake_rl.procgen.rollout import main

if __name__ == "__main__":
    raise SystemExit(main())
