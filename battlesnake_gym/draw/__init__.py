"""Images of boards and games: SVG, PNG, GIF, MP4 and text."""
