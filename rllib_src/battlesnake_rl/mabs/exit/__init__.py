"""Expert iteration: games of the search, labels, fits."""
