"""Builds: turn new events into parts of tables.

build.py       a build: stages new records, folds them and merges the results with the existing tables
stage.py       an archive's files, or copies of another log's records: pieces, undecoded
pieces.py      a survey of the pieces, and the records of groups in them
engine.py      the interface of engines, which pass each group's records to the fold in order
local.py       the engine in this process: DuckDB sorts, on disk if necessary
spark.py       the engine on Spark: `mapInArrow` directly after `sortWithinPartitions`
fold.py        records of one group -> rows of all tables, in one pass (pure)
partition_reads.py  the reads that concern all groups of a partition, as each group sees them
open_items.py  open state at the end of a build, carried over to the next
carry.py       copies the open rows of groups without new events
joining.py     merges small files of closed rows
"""
