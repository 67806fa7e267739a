"""pyarrow without pandas, which it would import at the first list that is given to it: a second, and 60 MB.

That is where pandas is installed, as beside PySpark; nothing here needs it. What has imported it already goes on as
before, and whoever asks pyarrow for a data frame later gets one.
"""

import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa


class _NoPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def leave_pandas_out() -> None:
    """Have pyarrow look for pandas now, once for all of this process, and find none."""
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(_NoPandas)
