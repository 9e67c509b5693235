"""Run a trained Procgen agent; see ``--help`` or ``docs/how-to/train-procgen.md``."""

from battlesnake_rl.commands.procgen_rollout_command import main

if __name__ == "__main__":
    raise SystemExit(main())
