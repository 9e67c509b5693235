"""Examples of user-defined algorithms, which `kit.plugins` finds by file name."""
