"""The commands of `muster replay`, as they are given."""
