"""Engines bring each group's records in one run, in order, to the fold.

engine.py    the interface, and the work that is the same in all: records in order -> parts of tables
local.py     in this process: DuckDB sorts, on disk where it must
spark.py     on Spark's workers: `sortWithinPartitions` directly under `mapInArrow`
progress.py  how far those workers are, by files that they write
"""
