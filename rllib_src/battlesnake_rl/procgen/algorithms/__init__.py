"""Examples of algorithms of one's own; `battlesnake_rl.procgen.plugins` finds them by the file's name."""
