"""Train an agent on a Procgen game; see ``--help``, or ``docs/procgen.md``."""

from imports import explained

if __name__ == "__main__":
    with explained():
        from battlesnake_rl.procgen.procgen_launcher import main
    raise SystemExit(main())
