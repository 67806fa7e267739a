"""The APIs that are handled or merged here, with related ones in one file; `registry.py` has all of them by key."""
