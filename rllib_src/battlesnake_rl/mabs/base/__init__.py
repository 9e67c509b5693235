"""Code shared by all algorithms: environment runners, learners, settings and ladder evaluation."""
