"""Several processes of one host."""
