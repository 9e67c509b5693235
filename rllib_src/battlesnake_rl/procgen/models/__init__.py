"""Examples of user-defined networks, which `kit.plugins` finds by file name."""
