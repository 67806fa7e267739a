"""Damaged logs: `muster replay` reports the damage to a file, or its answer is that of the undamaged file.

damages.py      what happens to files answers.py      what the commands say of a damaged log, and a verdict on it
__main__.py     the long form: `make damage`
"""
