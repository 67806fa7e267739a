"""A history as a value."""
