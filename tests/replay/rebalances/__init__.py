"""History -> rebalances."""
