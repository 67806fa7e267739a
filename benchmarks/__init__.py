"""What is measured, against what, and the results. `make bench` runs all of it; `python -m benchmarks --help` parts."""
