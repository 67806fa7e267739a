"""The service that is drilled: processes that the drill starts, or a running service of others."""
