"""Several processes on one host."""
