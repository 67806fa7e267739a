"""`muster members`: the members of a group, for administrators at a terminal. A skin over `coordinator.admin`."""
