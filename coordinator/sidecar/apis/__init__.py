"""The APIs that are answered or merged here, kin in one file; `registry.py` has all of them by key."""
