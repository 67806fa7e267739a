"""Builds: what a log has told since the last one -> parts of tables.

build.py       a build: what is new is staged, folded and joined to what there is
stage.py       an archive's files, or copies of another log's records: pieces, undecoded
pieces.py      pieces at a glance, and the records of groups in them
engine.py      the interface of engines, which bring each group's records in order to the fold
local.py       the engine in this process: DuckDB sorts, on disk where it must
spark.py       the engine on Spark: `sortWithinPartitions` directly under `mapInArrow`
fold.py        records of one group -> rows of all tables, in one pass (pure)
partition_reads.py  what concerns all groups of a partition, as each of them is told it
open_items.py  what is open at the end of a build, carried over to the next
carry.py       groups to which nothing happened: their open rows are copied
joining.py     small files of what is closed, joined into fewer
"""
