"""Taking the winner of a run home: source, header, examples and README that need no mptune."""

from mptune.emit.definition import kernel_of, remarks, sizes_of
from mptune.emit.selection import Winner, select
from mptune.emit.writing import Emission, emit, emit_all_devices, winner_of

__all__ = ["Emission", "Winner", "emit", "emit_all_devices", "kernel_of", "remarks", "select", "sizes_of", "winner_of"]
