#!/usr/bin/env bash
# DuckDB 2.0.1: an Arrow reader of a cursor holds the whole result in memory, beyond memory_limit.
#
# `connection.execute(query).to_arrow_reader(rows)` returns a reader of record batches. DuckDB 1.5.6 streams them, so a
# sort that spills to disk stays near memory_limit. DuckDB 2.0.1 materializes the result first and copies it, so the
# process needs the size of the result, whatever memory_limit says. Its UserWarning, "Arrow output on a DB-API result
# makes an extra copy of the rows", does not say that the reader no longer streams. A relation, which the warning names,
# `connection.sql(query).to_arrow_reader(rows)`, streams in both versions.
#
# Seen with memory_limit = 300MB, for 6,000,000 sorted rows of some 140 bytes; peak memory of the process:
#   1.5.6 execute: 418 MB      1.5.6 sql: 420 MB
#   2.0.1 execute: 1395 MB     2.0.1 sql: 439 MB
#
# Exit code 1 when that changes. It takes Python 3.11 or later, pip, some 200 MB of disk, and minutes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 1.5.6 2.0.1; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/pip" install -q "duckdb==$version" pyarrow==26.0.1
done

cat > "$folder/try.py" <<'PYTHON'
import resource, sys

import duckdb

how, spilled = sys.argv[1:]
connection = duckdb.connect(config={"memory_limit": "300MB", "threads": 2, "temp_directory": spilled})
query = "select range, md5(range::varchar) as name, repeat('x', 100) as padding from range(6_000_000) order by name"
reader = getattr(connection, how)(query).to_arrow_reader(20_000)
assert sum(batch.num_rows for batch in reader) == 6_000_000
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
PYTHON

changed=0
for version in 1.5.6 2.0.1; do
  for how in execute sql; do
    peak=$("$folder/$version/bin/python" "$folder/try.py" "$how" "$folder/spilled" 2> /dev/null)
    echo "$version $how: $peak MB"
    if [ "$version $how" = "2.0.1 execute" ]; then
      [ "$peak" -gt 900 ] || changed=1
    else
      [ "$peak" -lt 700 ] || changed=1
    fi
  done
done
exit $changed
