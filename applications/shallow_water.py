"""Waves in a basin: the nonlinear shallow water equations in two dimensions, over an uneven bed, between walls.

Unknown are the height w of the surface and the momenta (q_x, q_y), which are depth times velocity. The depth is
h = w - b over a bed of height b. Heights are in units of the depth at the foot of the bed's mounts, and times are such
that gravity is 1, so that a low wave has a speed of about 1. A cell is 1 wide, too: what counts is how many cells a
wave gets on.

    w_t + div q = 0,    q_t + div(q q / h) + grad(w (w / 2 - b)) = -w grad(b)

The scheme is of second order: piecewise linear surfaces and momenta with the minmod limiter, the flux of Rusanov at
every face of a cell (Kurganov & Tadmor 2000), and Heun's method in time, with as long a step as the fastest wave
allows. The bed is given at the corners of cells, and the equations are written for the surface (Rogers, Borthwick &
Taylor 2003), so that water at rest stays at rest over any bed, and narrow types spend their digits on waves.

What leaves a cell enters the next one, whatever the type of the fluxes: only rounding in ``update`` changes the volume
of water. So there are two thresholds to keep, which ask for different types: ``--max-error NRMSE:1e-4`` bounds the
error of the final depths and momenta, and ``--max-error mass_drift:1e-6`` the relative change of the volume. The first
is against the same scheme in fp64.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mptune import (
    Application,
    BooleanParameter,
    Buffer,
    In,
    InOut,
    Kernel,
    OrdinalParameter,
    Out,
    PolicyParameter,
    PrecisionParameter,
    Scalar,
    Scratch,
)
from mptune.errors import KernelError
from mptune.kernel import Sizes

if TYPE_CHECKING:
    import altair

TYPES = ("fp64", "fp32", "fp16", "bf16")
#: Cells beyond each wall, which the reconstruction at the wall looks at.
GHOSTS = 2
PADDED = ("height + 4", "width + 4")
#: How far the fastest wave goes in a time step, in cells; half a cell is the limit of stability in two dimensions.
COURANT = 0.4
#: ``speed`` gives speeds as integers, in units of this; what is not below 64 is no wave but an instability.
SPEED_UNIT = 2.0**-20
NO_SPEED = 0xFFFFFFFF

TILES = (
    OrdinalParameter("block_size_x", [16, 32, 64, 128]),
    OrdinalParameter("block_size_y", [1, 2, 4, 8]),
    OrdinalParameter("run", [1, 2, 4, 8, 16, 32]),
    OrdinalParameter("rows", [1, 2, 4, 8]),
)
TILE_CONSTRAINTS = ("32 <= block_size_x * block_size_y <= 256", "run * rows <= 64")
#: The square root in other types than these is another policy's.
ROOT_CONSTRAINTS = ("policy != 'fast' or work_type == 'fp32'", "policy != 'approx' or work_type in ('fp16', 'bf16')")
STATE = (
    In("surface", PADDED, precision="surface_type"),
    In("momentum", (2, *PADDED), precision="momentum_type"),
)
BED = In("bed", ("height + 1", "width + 1"), precision="bed_type")
STATE_TYPES = (PrecisionParameter("surface_type", TYPES), PrecisionParameter("momentum_type", TYPES))
BED_TYPE = PrecisionParameter("bed_type", TYPES)
FLUX_TYPE = PrecisionParameter("flux_type", TYPES)
FLUXES = {"flux_x": (3, "height", "width + 1"), "flux_y": (3, "height + 1", "width")}


def bumps(rng: np.random.Generator, count: int, x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    """Return the sum of Gaussian hills, at most 1 high, at places in the basin, which is 1 wide or high."""
    found = np.zeros(np.broadcast_shapes(x.shape, y.shape))
    for _ in range(count):
        at_x, at_y = rng.uniform(x.min(), x.max()), rng.uniform(y.min(), y.max())
        radius = rng.uniform(0.05, 0.15)
        found += rng.uniform(0.3, 1.0) * np.exp(-((x - at_x) ** 2 + (y - at_y) ** 2) / (2 * radius**2))
    found /= max(found.max(), 1.0)
    return found


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """A basin with sea mounts, some hills of water, and a column of water whose round dam breaks at the start.

    Raises:
        KernelError: the basin is only one cell wide or high; a mirror of two cells has no place there.
    """
    if min(size.width, size.height) < GHOSTS:
        raise KernelError(f"application shallow_water: width and height need to be at least {GHOSTS}, got {size}")
    side = max(size.width, size.height)
    corner_x, corner_y = np.arange(size.width + 1)[None, :] / side, np.arange(size.height + 1)[:, None] / side
    x, y = (corner_x[:, :-1] + corner_x[:, 1:]) / 2, (corner_y[:-1] + corner_y[1:]) / 2
    surface = 0.2 * bumps(rng, 5, x, y)
    dam_x, dam_y = rng.uniform(0.2, 0.8) * x.max(), rng.uniform(0.2, 0.8) * y.max()
    radius, height = rng.uniform(0.05, 0.15), rng.uniform(0.2, 0.4)
    surface[(x - dam_x) ** 2 + (y - dam_y) ** 2 < radius**2] += height
    momentum = np.zeros((2, size.height + 2 * GHOSTS, size.width + 2 * GHOSTS))
    bed = -1 + 0.5 * bumps(rng, 8, corner_x, corner_y)
    return {"surface": np.pad(surface, GHOSTS), "momentum": momentum, "bed": bed}


def of_cells(bed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the height of the bed of each cell (height, width), which is the mean of those of its corners."""
    means: NDArray[np.float64] = (bed[:-1, :-1] + bed[:-1, 1:] + bed[1:, :-1] + bed[1:, 1:]) / 4
    return means


def volume(surface: NDArray[np.float64], bed: NDArray[np.float64]) -> float:
    """Return how much water is between a surface, those cells beyond the walls included, and a bed."""
    return float((surface[GHOSTS:-GHOSTS, GHOSTS:-GHOSTS] - of_cells(bed)).sum())


def mass_drift(
    output: NDArray[np.float64],
    reference: NDArray[np.float64],  # noqa: ARG001 - what a metric is called with
    inputs: Mapping[str, Any],
) -> float:
    """Return by which share the volume of water changed from the inputs to the final state."""
    before = volume(inputs["surface"], inputs["bed"])
    return abs(float(output[0].sum()) - before) / before


mass_drift.version = "1"  # type: ignore[attr-defined]


def steps(run: Any, size: Sizes) -> None:
    """Go on until a low wave in water of mean depth has come ``reach`` cells far."""
    for when in ("between", "after"):  # update leaves the cells beyond the walls as they are
        run.copy(run.surface, f"surface_{when}")
        run.copy(run.momentum, f"momentum_{when}")
    time = 0.0
    while time < size.reach:
        run.boundary(surface=run.surface, momentum=run.momentum)
        run.fill(run.fastest, 0)
        run.speed(surface=run.surface, momentum=run.momentum, bed=run.bed, fastest=run.fastest)
        fastest = int(run.read(run.fastest)[0])
        if fastest == NO_SPEED:
            run.fill(run.surface, np.nan)  # no step would be short enough
            break
        step = min(COURANT / (fastest * SPEED_UNIT), size.reach - time)
        run.fluxes(surface=run.surface, momentum=run.momentum, bed=run.bed, flux_x=run.flux_x, flux_y=run.flux_y)
        advance(run, step, 1.0, run.surface, run.momentum, run.surface_between, run.momentum_between)
        run.boundary(surface=run.surface_between, momentum=run.momentum_between)
        run.fluxes(
            surface=run.surface_between,
            momentum=run.momentum_between,
            bed=run.bed,
            flux_x=run.flux_x,
            flux_y=run.flux_y,
        )
        advance(run, step, 0.5, run.surface_between, run.momentum_between, run.surface_after, run.momentum_after)
        run.swap(run.surface, run.surface_after)
        run.swap(run.momentum, run.momentum_after)
        time += step
    run.gather(surface=run.surface, momentum=run.momentum, bed=run.bed, state=run.state)


def advance(
    run: Any, step: float, share: float, surface: Any, momentum: Any, to_surface: Any, to_momentum: Any
) -> None:
    """Go this share of the way from the state before the time step to one step on from the state given."""
    run.update(
        new_surface=to_surface,
        new_momentum=to_momentum,
        old_surface=run.surface,
        old_momentum=run.momentum,
        surface=surface,
        momentum=momentum,
        bed=run.bed,
        flux_x=run.flux_x,
        flux_y=run.flux_y,
        step=step,
        share=share,
    )


boundary = Kernel(
    name="boundary",
    parameters=[*STATE_TYPES, OrdinalParameter("block_size", [32, 64, 128, 256])],
    arguments=[
        InOut("surface", PADDED, precision="surface_type"),
        InOut("momentum", (2, *PADDED), precision="momentum_type"),
    ],
    grid=["ceildiv(2 * max(width, height), block_size)"],
    block=["block_size"],
)
speed = Kernel(
    name="speed",
    parameters=[
        OrdinalParameter("block_size", [32, 64, 128, 256]),
        OrdinalParameter("run", [1, 2, 4, 8, 16, 32]),
        OrdinalParameter("rows", [4, 8, 16, 32, 64]),
        BooleanParameter("use_shared"),
        *STATE_TYPES,
        BED_TYPE,
        PrecisionParameter("work_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=ROOT_CONSTRAINTS,
    arguments=[*STATE, BED, InOut("fastest", 1, dtype="uint32")],
    grid=["ceildiv(width, block_size * min(run, width))", "ceildiv(height, min(rows, height))"],
    block=["block_size"],
)
fluxes = Kernel(
    name="fluxes",
    parameters=[
        *TILES,
        *STATE_TYPES,
        BED_TYPE,
        FLUX_TYPE,
        PrecisionParameter("work_type", TYPES),
        PolicyParameter("policy"),
    ],
    constraints=[*TILE_CONSTRAINTS, *ROOT_CONSTRAINTS],
    arguments=[
        *(Out(name, shape, precision="flux_type") for name, shape in FLUXES.items()),
        *STATE,
        BED,
    ],
    grid=[
        "ceildiv(width + 1, block_size_x * min(run, width))",
        "ceildiv(height + 1, block_size_y * min(rows, height))",
    ],
    block=["block_size_x", "block_size_y"],
)
update = Kernel(
    name="update",
    parameters=[*TILES, *STATE_TYPES, BED_TYPE, FLUX_TYPE, PrecisionParameter("work_type", TYPES)],
    constraints=TILE_CONSTRAINTS,
    arguments=[
        InOut("new_surface", PADDED, precision="surface_type"),
        InOut("new_momentum", (2, *PADDED), precision="momentum_type"),
        In("old_surface", PADDED, precision="surface_type"),
        In("old_momentum", (2, *PADDED), precision="momentum_type"),
        *STATE,
        BED,
        *(In(name, shape, precision="flux_type") for name, shape in FLUXES.items()),
        Scalar("step", precision="work_type"),
        Scalar("share", precision="work_type"),
    ],
    grid=["ceildiv(width, block_size_x * min(run, width))", "ceildiv(height, block_size_y * min(rows, height))"],
    block=["block_size_x", "block_size_y"],
)
gather = Kernel(
    name="gather",
    parameters=[
        *STATE_TYPES,
        BED_TYPE,
        PrecisionParameter("state_type", TYPES),
        OrdinalParameter("block_size", [64, 256]),
    ],
    arguments=[Out("state", (3, "height", "width"), precision="state_type"), *STATE, BED],
    grid=["ceildiv(width, block_size)", "height"],
    block=["block_size"],
)

application = Application(
    name="shallow_water",
    description="waves in a basin: nonlinear shallow water equations, whose volume of water is to stay the same",
    kernels=[boundary, speed, fluxes, update, gather],
    buffers=[
        InOut("surface", PADDED, precision="surface_type"),
        InOut("momentum", (2, *PADDED), precision="momentum_type"),
        Buffer("bed", ("height + 1", "width + 1"), precision="bed_type"),
        *(Scratch(f"surface_{when}", PADDED, precision="surface_type") for when in ("between", "after")),
        *(Scratch(f"momentum_{when}", (2, *PADDED), precision="momentum_type") for when in ("between", "after")),
        *(Scratch(name, shape, precision="flux_type") for name, shape in FLUXES.items()),
        Scratch("fastest", 1, dtype="uint32"),
        Buffer("state", (3, "height", "width"), precision="state_type"),
    ],
    constraints=[
        # What comes out of narrower arithmetic than its own type only moves more bytes.
        "sizeof(flux_type) <= sizeof(fluxes.work_type)",
        "max(sizeof(surface_type), sizeof(momentum_type)) <= sizeof(update.work_type)",
    ],
    sizes={
        "smoke": {"width": 61, "height": 43, "reach": 12},
        "default": {"width": 320, "height": 240, "reach": 30},
        "paper": {"width": 4000, "height": 3000, "reach": 400},
    },
    inputs=inputs,
    steps=steps,
    outputs=["state"],
    metric=["NRMSE", mass_drift],
)


def picture(outputs: Mapping[str, Any], inputs: Mapping[str, Any], size: Sizes) -> altair.TopLevelMixin:
    """Return a chart of the surface at the start and the end, and of a cut through both and the bed."""
    import altair
    import pandas as pd

    from mptune.show import map_of

    bed = of_cells(inputs["bed"])
    before = np.asarray(inputs["surface"])[GHOSTS:-GHOSTS, GHOSTS:-GHOSTS]
    after = np.asarray(outputs["state"])[0] + bed
    limit = float(np.nanmax(np.abs([before, after])))
    row = int(before.max(axis=1).argmax())
    label = "height, in depths of the basin"
    maps = [
        map_of(surface, label, scheme="redblue", domain=(-limit, 0, limit)).properties(title=f"surface at the {name}")
        for name, surface in (("start", before), ("end", after))
    ]
    cut = pd.DataFrame({"cell": range(size.width), "start": before[row], "end": after[row], "bed": bed[row]})
    lines = altair.Chart(cut.melt("cell")).mark_line().encode(
        x=altair.X("cell:Q", title=f"cell of row {row}"),
        y=altair.Y("value:Q", title=label),
        color=altair.Color("variable:N", title=None),
        strokeDash=altair.StrokeDash("variable:N", title=None),
    )  # fmt: skip
    return altair.vconcat(altair.hconcat(*maps), lines.properties(width=600, height=140))
