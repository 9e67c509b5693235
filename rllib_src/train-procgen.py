"""Train an agent on a Procgen game; see ``--help`` or ``docs/procgen.md``."""

from imports import explained

if __name__ == "__main__":
    with explained():
        from battlesnake_rl.commands.procgen_train_command import main
    raise SystemExit(main())
