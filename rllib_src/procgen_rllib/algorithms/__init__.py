"""Examples of algorithms of one's own; `procgen_rllib.plugins` finds them by the file's name."""
