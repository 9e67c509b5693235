"""Code that all algorithms share: environment runners, learners, training loop, metrics."""
