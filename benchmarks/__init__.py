"""Measurements, each against others and with its results. `make bench` runs all; `python -m benchmarks` some."""
