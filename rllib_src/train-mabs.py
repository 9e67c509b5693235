"""Train a Battlesnake policy; see ``--help`` or ``docs/training.md``."""

from imports import explained

if __name__ == "__main__":
    with explained():
        from battlesnake_rl.commands.train_command import main
    raise SystemExit(main())
