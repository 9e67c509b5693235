"""Examples of callbacks of one's own; `battlesnake_rl.procgen.kit.plugins` finds them by the file's name."""
