"""The run file: one SQLite database with the definition, the progress and every trial of a run.

A trial is on the disk when :meth:`RunFile.add` returns. With a rollback journal, unlike a write-ahead log, the file is
complete between two trials, can be copied, and works on network file systems. One process writes at a time; others may
read meanwhile. Nothing in a file is evaluated or unpickled.
"""

from mptune.store.info import INTERRUPTED, LaunchInfo, ParameterInfo, RunInfo, RunState, unit_of
from mptune.store.run_file import FORMAT_VERSION, RunFile

__all__ = ["FORMAT_VERSION", "INTERRUPTED", "LaunchInfo", "ParameterInfo", "RunFile", "RunInfo", "RunState", "unit_of"]
