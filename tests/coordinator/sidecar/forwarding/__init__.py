"""Several sidecars of one event log: forwarded requests."""
