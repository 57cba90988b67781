"""Taking the winner of a run home: source, header, examples and README that need no mptune."""

from mptune.emit.common import Emission
from mptune.emit.dispatching import Dispatch, emit_dispatch, single_kernel_of
from mptune.emit.winner import Winner, select
from mptune.emit.writing import emit, emit_all_devices, winner_of

__all__ = [
    "Dispatch",
    "Emission",
    "Winner",
    "emit",
    "emit_all_devices",
    "emit_dispatch",
    "select",
    "single_kernel_of",
    "winner_of",
]
