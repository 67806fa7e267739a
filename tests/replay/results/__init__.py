"""The results of commands."""
