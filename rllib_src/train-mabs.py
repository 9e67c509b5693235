"""Train a Battlesnake policy; see ``--help`` or ``docs/tutorials/first-trained-snake.md``."""

from imports import explain_import_errors

if __name__ == "__main__":
    with explain_import_errors():
        from battlesnake_rl.commands.train_command import main
    raise SystemExit(main())
