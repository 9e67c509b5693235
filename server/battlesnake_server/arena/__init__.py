"""The arena: snakes play each other under a referee, and are rated."""
