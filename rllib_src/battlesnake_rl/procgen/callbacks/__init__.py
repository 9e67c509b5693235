"""Examples of callbacks of your own; `kit.plugins` finds them by the file's name."""
