"""Train an agent on a Procgen game; see ``--help`` or ``docs/how-to/train-procgen.md``."""

from imports import explain_import_errors

if __name__ == "__main__":
    with explain_import_errors():
        from battlesnake_rl.commands.procgen_train_command import main
    raise SystemExit(main())
