"""Files of users and of the competition's starter kit: experiments, networks, callbacks and more."""
