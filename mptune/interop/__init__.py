"""Files: recorded spaces, and other tools' formats: Kernel Tuner cache files, T1 inputs, T4 results, tables."""

from mptune.interop.cache import read_cache, write_cache
from mptune.interop.recorded import RecordedSpace
from mptune.interop.recording import read_recording, write_recording
from mptune.interop.spaces import from_run, parameters_of, read_run, read_space, to_run
from mptune.interop.t1 import read_t1
from mptune.interop.t4 import read_t4, write_t4
from mptune.interop.tables import EXPORTERS, to_cache, to_csv, to_json, to_parquet, to_recording, to_t4

__all__ = [
    "EXPORTERS",
    "RecordedSpace",
    "from_run",
    "parameters_of",
    "read_cache",
    "read_recording",
    "read_run",
    "read_space",
    "read_t1",
    "read_t4",
    "to_cache",
    "to_csv",
    "to_json",
    "to_parquet",
    "to_recording",
    "to_run",
    "to_t4",
    "write_cache",
    "write_recording",
    "write_t4",
]
