"""Rule-based snakes: views of a board, filters, preferences and pipelines."""
