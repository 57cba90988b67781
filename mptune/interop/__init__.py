"""Files: recorded spaces, and other tools' formats: Kernel Tuner cache files, T1 inputs, T4 results, tables.

A module of this folder that declares a :class:`~mptune.interop.files.Format` adds a format.
"""

from mptune.interop.cache import read_cache, write_cache
from mptune.interop.recorded import RecordedSpace, from_run, parameters_of, to_run
from mptune.interop.recording import read_recording, write_recording
from mptune.interop.spaces import EXPORTERS, FORMATS, read_run, read_space
from mptune.interop.t1 import read_t1
from mptune.interop.t4 import read_t4, write_t4
from mptune.interop.tables import to_csv, to_json, to_parquet

__all__ = [
    "EXPORTERS", "FORMATS", "RecordedSpace", "from_run", "parameters_of", "read_cache", "read_recording",
    "read_run", "read_space", "read_t1", "read_t4", "to_csv", "to_json", "to_parquet", "to_run",
    "write_cache", "write_recording", "write_t4",
]  # fmt: skip
