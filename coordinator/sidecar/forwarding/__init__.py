"""Several sidecars of one event log: a request for a group goes to the process that owns it, and its answer back."""
