"""Stores of committed offsets. Offsets are not events: only the last commit for each partition matters."""
