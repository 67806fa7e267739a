"""Other settings."""
