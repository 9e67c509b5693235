"""Files of users and of the competition's starter kit: experiments, networks and callbacks."""
