"""Examples of networks of your own; `kit.plugins` finds them by the file's name."""
