"""One game as an object, its JSON and text, and what is read off its cells."""
