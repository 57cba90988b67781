"""The run file: one SQLite database with what a run is, how far it has come, and every trial of it.

A trial is on the disk when :meth:`RunFile.add` returns. The rollback journal is used rather than a
write-ahead log: between two trials the one file is complete by itself and can be copied, and it works on
network file systems. One process writes at a time; any number may read meanwhile. What is read is data
only: nothing is evaluated or unpickled.
"""

from mptune.store.info import LaunchInfo, ParameterInfo, RunInfo, RunState, unit_of
from mptune.store.run_file import FORMAT_VERSION, RunFile

__all__ = ["FORMAT_VERSION", "LaunchInfo", "ParameterInfo", "RunFile", "RunInfo", "RunState", "unit_of"]
