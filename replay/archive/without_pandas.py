"""Imports pyarrow without pandas, which pyarrow would load for the first list that it gets: a second, and 60 MB.

That matters where pandas is installed, e.g. with PySpark; nothing here needs it. Code that has already imported pandas
is unaffected, and a later request to pyarrow for a data frame still works.
"""

import sys
from importlib.machinery import ModuleSpec

import pyarrow as pa


class _NoPandas:
    """An import finder that reports pandas as missing."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
        return None


def leave_pandas_out() -> None:
    """Make pyarrow look for pandas now and not find it, which lasts for this process."""
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(_NoPandas)
