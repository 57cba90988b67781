"""The kernel that does whatever goes wrong, each of it once."""

from __future__ import annotations

import faulty

from mptune.space.parameters import OrdinalParameter, PrecisionParameter

kernel = faulty.kernel.changed(
    parameters=[
        faulty.kernel.parameters[0],
        OrdinalParameter("block", [64]),
        PrecisionParameter("y_type", ["fp32"]),
    ]
)
