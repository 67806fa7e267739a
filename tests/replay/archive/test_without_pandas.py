"""pyarrow is used without pandas. This runs in a separate process: after one import, pandas stays loaded."""

import importlib.util
import subprocess
import sys
from typing import Final

SAYS: Final = """
import sys
import muster.replay.archive.segment
import muster.replay.fleet.building.pieces, muster.replay.fleet.tables.parts
import pyarrow as pa
pa.array([1, 2]), pa.scalar("x"), pa.RecordBatch.from_pylist([{"a": 1}])
assert "pandas" not in sys.modules
frame = pa.table({"a": [1, 2]}).to_pandas()
assert pa.array(frame["a"]).to_pylist() == [1, 2]
"""


def test_arrays_import_no_pandas_and_a_data_frame_can_be_had() -> None:
    """pandas is installed, as always beside PySpark; pyarrow would import it with the first list."""
    assert importlib.util.find_spec("pandas") is not None

    ran = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 0, ran.stderr
