"""Damaged logs: whatever happened to a file, `muster replay` says it, or answers as if nothing had.

damages.py      what happens to files
answers.py      what the commands say of a damaged log, and a verdict on it
__main__.py     the long form: `make damage`
"""
