"""Stores of committed offsets. Offsets are no events: only the last one of each partition matters."""
