"""Logs that are read, and exports."""
