#!/usr/bin/env bash
# kio 0.6.5: importing a message loads Hypothesis, too, wherever that is installed.
#
# kio/static/_phantom.py tries to import hypothesis.strategies, and kio's types register strategies with it. kio does not
# depend on Hypothesis, but test environments usually have it. There each process that uses kio loads three times as many
# modules, also one that a test only starts, such as a server or a command.
#
# Seen with Python 3.11, after `import kio.schema.heartbeat.v4.request`:
#   without Hypothesis: 0 modules of Hypothesis, 101 in all (0.03 s)
#   with Hypothesis: 78 modules of Hypothesis, 298 in all (0.22 s)
#
# Exit code 1 when that changes. It takes Python 3.11 or later, pip, and 50 MB.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q kio==0.6.5

cat > "$folder/try.py" <<'PYTHON'
import sys, time

began = time.process_time()
import kio.schema.heartbeat.v4.request

took = time.process_time() - began
loaded = sum(name.partition(".")[0] == "hypothesis" for name in sys.modules)
print(f"{sys.argv[1]} Hypothesis: {loaded} modules of Hypothesis, {len(sys.modules)} in all ({took:.2f} s)")
sys.exit((loaded > 0) != (sys.argv[1] == "with"))
PYTHON

"$folder/venv/bin/python" "$folder/try.py" without
"$folder/venv/bin/pip" install -q hypothesis==6.170.15
"$folder/venv/bin/python" "$folder/try.py" with > /dev/null # compiles what is imported
"$folder/venv/bin/python" "$folder/try.py" with
