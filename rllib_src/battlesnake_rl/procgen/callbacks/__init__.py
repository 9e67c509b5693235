"""Examples of user-defined callbacks, which `kit.plugins` finds by file name."""
