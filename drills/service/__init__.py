"""The service under test: processes that the drill starts, or a running service."""
