"""Benchmarks, with their results, compared with Kafka and others. `make bench` runs all; `python -m benchmarks`
some.
"""
