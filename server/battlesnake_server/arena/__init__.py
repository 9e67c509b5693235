"""The arena: who plays whom, under a referee, and how strong that shows them to be."""
