"""Expert iteration and distillation: games of the search, labels, fits."""
