"""Files: recorded spaces, and other tools' formats: Kernel Tuner cache files, T1 inputs, T4 results, tables.

A module of this folder that declares a :class:`~mptune.interop.files.Format` adds a format.
"""

from mptune.interop.spaces import EXPORTERS, FORMATS, read_run, write_run
from mptune.interop.t1 import read_t1
from mptune.interop.tables import to_csv, to_json, to_parquet

__all__ = ["EXPORTERS", "FORMATS", "read_run", "read_t1", "to_csv", "to_json", "to_parquet", "write_run"]
