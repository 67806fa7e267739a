"""One owned partition: its groups, requests to them, their deadlines, its appends."""
