"""EXIT: self-play of the search, TD(lambda) labels and fits of the evaluation."""
