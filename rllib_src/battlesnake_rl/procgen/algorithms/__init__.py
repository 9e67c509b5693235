"""Examples of algorithms of your own; `kit.plugins` finds them by the file's name."""
