"""Sharing one event loop and one memory between requests with many entries."""
