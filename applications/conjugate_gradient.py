"""conjugate_gradient: Poisson's equation in 3-D with a variable coefficient, by preconditioned conjugate gradients.

-div(k grad u) = f on a box, u = 0 on its surface, by finite volumes: seven nonzeros in a row, stored in CSR. Everything
in an iteration runs at the speed of memory, so narrow types save time as long as they do not cost iterations. What
counts is the residual ||b - A x|| / ||b||, computed in fp64 from the matrix and the right-hand side as they are given:
the residual that the iteration itself carries along keeps falling in any type, also when x no longer gets better.

``method`` says what is done about that. ``plain`` solves once, to so many ``digits``. ``refined`` is iterative
refinement (Wilkinson 1963; Carson & Higham 2018): narrow types solve for a correction to ``inner_tolerance`` only, the
residual is computed anew in ``system_type``, and so on. The narrow types are those of the matrix and the vectors of the
inner solve; what is given, and x, have ``system_type``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mptune.kernel import Application, Buffer, In, InOut, Kernel, Out, Scalar, Scratch, Sizes
from mptune.precision import COMPOUND
from mptune.space.parameters import CategoricalParameter, OrdinalParameter, PrecisionParameter

if TYPE_CHECKING:
    import altair

TYPES = ("fp64", "fp32", "fp16", "bf16")
#: Of the inner solve: matrix, preconditioner, residual, correction; search direction and what the matrix makes of it.
INNER_TYPES = ("matrix_type", "inverse_type", "residual_type", "correction_type", "direction_type")
ROWS = "nx * ny * nz"
NONZEROS = "7 * nx * ny * nz - 2 * (nx * ny + ny * nz + nz * nx)"
#: Partial sums a scalar product leaves, for the processor to add up.
PARTIALS = 512

BLOCK_SIZE = OrdinalParameter("block_size", [32, 64, 128, 256, 512, 1024])
VECTOR_WIDTH = OrdinalParameter("vector_width", [1, 2, 4, 8])

spmv = Kernel(
    name="spmv",
    description="y = A x, a row for a thread",
    parameters=[
        BLOCK_SIZE,
        OrdinalParameter("rows_per_thread", [1, 2, 4, 8]),
        PrecisionParameter("value_type", TYPES),
        PrecisionParameter("x_type", TYPES),
        PrecisionParameter("y_type", TYPES),
        # Of products and sums; the type of y where that is wider.
        PrecisionParameter("sum_type", TYPES),
    ],
    arguments=[
        Out("y", "rows", precision="y_type"),
        In("values", "nonzeros", precision="value_type"),
        In("columns", "nonzeros", dtype="int32"),
        In("starts", "rows + 1", dtype="int32"),
        In("x", "rows", precision="x_type"),
        Scalar("rows", dtype="int32"),
    ],
    grid=["ceildiv(rows, block_size * rows_per_thread)"],
    block=["block_size"],
)
dot = Kernel(
    name="dot",
    description="scalar product, as partial sums",
    function="scalar_product",
    parameters=[
        # A block of one thread has nobody to wait for, which suits a processor.
        OrdinalParameter("block_size", [1, 64, 128, 256, 512]),
        OrdinalParameter("blocks", [2, 8, 32, 128, PARTIALS]),
        VECTOR_WIDTH,
        PrecisionParameter("x_type", TYPES),
        PrecisionParameter("y_type", TYPES),
        PrecisionParameter("sum_type", ["fp64", "fp32"], on_request=COMPOUND),
    ],
    arguments=[
        Out("partial", "partials", precision="fp64"),
        In("x", "n", precision="x_type"),
        In("y", "n", precision="y_type"),
        Scalar("n", dtype="int32"),
    ],
    grid=["blocks"],
    block=["block_size"],
)
update = Kernel(
    name="update",
    description="y = alpha x + beta y; y is not read where beta is 0",
    parameters=[
        BLOCK_SIZE,
        VECTOR_WIDTH,
        PrecisionParameter("x_type", TYPES),
        PrecisionParameter("y_type", TYPES),
        # Of alpha and beta. The arithmetic is in the widest of the three types.
        PrecisionParameter("scalar_type", TYPES),
    ],
    arguments=[
        InOut("y", "n", precision="y_type"),
        In("x", "n", precision="x_type"),
        Scalar("alpha", precision="scalar_type"),
        Scalar("beta", precision="scalar_type"),
        Scalar("n", dtype="int32"),
    ],
    grid=["ceildiv(n, block_size * vector_width)"],
    block=["block_size"],
)
precondition = Kernel(
    name="precondition",
    description="z = r / diagonal of A (Jacobi)",
    parameters=[
        BLOCK_SIZE,
        VECTOR_WIDTH,
        PrecisionParameter("r_type", TYPES),
        PrecisionParameter("inverse_type", TYPES),
        PrecisionParameter("z_type", TYPES),
    ],
    arguments=[
        Out("z", "n", precision="z_type"),
        In("r", "n", precision="r_type"),
        In("inverse", "n", precision="inverse_type"),
        Scalar("n", dtype="int32"),
    ],
    grid=["ceildiv(n, block_size * vector_width)"],
    block=["block_size"],
)


def waves(rng: np.random.Generator, shape: tuple[int, int, int]) -> NDArray[np.float64]:
    """Return a smooth random field of mean 0 and deviation 1: a sum of twelve waves."""
    axes = np.meshgrid(*((np.arange(extent) + 0.5) / extent for extent in shape), indexing="ij", sparse=True)
    field = np.zeros(shape)
    for _ in range(12):
        phase = sum(2 * np.pi * rng.uniform(-3, 3) * axis for axis in axes)
        field += np.cos(phase + rng.uniform(0, 2 * np.pi))
    field -= field.mean()
    deviation = field.std()
    return field / deviation if deviation else field


def poisson(k: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Return the matrix of -div(k grad u), lengths in cells, in CSR, and the reciprocals of its diagonal.

    Between two cells k is their harmonic mean; the surface, where u is 0, is half a cell away from the outermost ones.

    Args:
        k: of each cell (nz, ny, nx).
    """
    _, ny, nx = k.shape
    # Neighbours in the order of their columns: below in z, y, x; itself; above in x, y, z.
    entries, exists = np.zeros((*k.shape, 7)), np.zeros((*k.shape, 7), bool)
    for axis in range(3):
        cells, own, near = (np.moveaxis(field, axis, 0) for field in (k, entries, exists))
        between = 2 / (1 / cells[1:] + 1 / cells[:-1])
        own[1:, ..., axis] = own[:-1, ..., 6 - axis] = -between
        near[1:, ..., axis] = near[:-1, ..., 6 - axis] = True
        for surface in (0, -1):
            own[surface, ..., 3] += 2 * cells[surface]
    entries[..., 3] -= entries[..., [0, 1, 2, 4, 5, 6]].sum(axis=-1)
    exists[..., 3] = True
    columns = np.arange(k.size).reshape(*k.shape, 1) + np.array([-nx * ny, -nx, -1, 0, 1, nx, nx * ny])
    return {
        "values": entries[exists],
        "columns": columns[exists],
        "starts": np.concatenate([[0], np.cumsum(exists.sum(axis=-1))]),
        "inverse": 1 / entries[..., 3].ravel(),
    }


def inputs(rng: np.random.Generator, size: Sizes) -> dict[str, Any]:
    """Flow through rock: its permeability k varies smoothly over two orders of magnitude, f are sources and sinks."""
    shape = (size.nz, size.ny, size.nx)
    k = np.exp(waves(rng, shape))
    source = waves(rng, shape) + rng.normal(0.0, 0.1, shape)
    return {**poisson(k), "b": source.ravel()}


def remainder(x: NDArray[Any], inputs: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return b - A x in fp64, from the inputs."""
    products = inputs["values"] * np.asarray(x, np.float64)[inputs["columns"]]
    found: NDArray[np.float64] = inputs["b"] - np.add.reduceat(products, inputs["starts"][:-1])
    return found


def residual(output: NDArray[Any], reference: NDArray[Any], inputs: Mapping[str, Any]) -> float:  # noqa: ARG001
    """Return ||b - A x|| / ||b||, or ||A x|| where b is 0."""
    return float(np.linalg.norm(remainder(output, inputs)) / (np.linalg.norm(inputs["b"]) or 1.0))


residual.version = 1  # type: ignore[attr-defined]


def inner_product(run: Any, x: Any, y: Any) -> float:
    """Return the scalar product of two buffers."""
    run.dot(x=x, y=y, partial=run.partial)
    return float(run.read(run.partial).sum())


def correct(run: Any, matrix: Any, target: float, limit: int, patience: int) -> int:
    """Solve A d = r from d = 0 until ||r|| is at most ``target``, and return the iterations that took.

    What cannot go on ends: a direction in which the matrix is not positive, as rounding makes it, NaN, or no smaller
    ||r|| for ``patience`` iterations. After 0 iterations there is no d.
    """
    run.precondition(r=run.r, inverse=run.inverse, z=run.q)
    descent = inner_product(run, run.r, run.q)
    run.update(x=run.q, y=run.p, alpha=1.0, beta=0.0)
    least, reached = math.inf, 0
    for done in range(limit):
        run.spmv(values=matrix, columns=run.columns, starts=run.starts, x=run.p, y=run.q)
        curvature = inner_product(run, run.p, run.q)
        if not (curvature > 0 and 0 < descent / curvature < math.inf):
            return done
        step = descent / curvature
        run.update(x=run.p, y=run.d, alpha=step, beta=1.0 if done else 0.0)
        run.update(x=run.q, y=run.r, alpha=-step, beta=1.0)
        norm = math.sqrt(inner_product(run, run.r, run.r))
        if norm < least:
            least, reached = norm, done
        if not target < norm < math.inf or done - reached >= patience:
            return done + 1
        # A p has been used; its buffer holds the preconditioned residual now.
        run.precondition(r=run.r, inverse=run.inverse, z=run.q)
        before, descent = descent, inner_product(run, run.r, run.q)
        run.update(x=run.q, y=run.p, alpha=1.0, beta=descent / before)
    return limit


def steps(run: Any, size: Sizes) -> None:
    """Solve A x = b: in one go, or by corrections."""
    matrix = run.values
    if run.matrix_type != run.system_type:
        matrix = run.matrix
        run.copy(run.values, matrix)
    norm = start = math.sqrt(inner_product(run, run.b, run.b))
    # Half of what may be left: rounding adds what the iteration does not see.
    goal, left, remaining, kept = 0.5 * 10.0**-size.digits * start, size.iterations, run.b, 0.0
    is_refined = run.method == "refined"
    while left and goal < norm < math.inf:
        # Elements of r are about 1, which narrow types can hold; a power of two rounds nothing.
        scale = 2.0 ** round(math.log2(norm / math.sqrt(size.nx * size.ny * size.nz)))
        run.update(x=remaining, y=run.r, alpha=1 / scale, beta=0.0)
        target = max(run.inner_tolerance * norm, goal / 2) if is_refined else goal
        # It takes so many iterations until every cell has heard of every other.
        done = correct(run, matrix, target / scale, left, size.nx + size.ny + size.nz)
        if not done:
            break
        run.update(x=run.d, y=run.x, alpha=scale, beta=kept)
        kept = 1.0
        if not is_refined:
            break
        left -= done
        remaining, before = run.remaining, norm
        run.spmv(values=run.values, columns=run.columns, starts=run.starts, x=run.x, y=remaining)
        run.update(x=run.b, y=remaining, alpha=1.0, beta=-1.0)
        norm = math.sqrt(inner_product(run, remaining, remaining))
        if not norm < before / 2:
            break  # no better in these types
    if not kept:
        run.fill(run.x, 0.0)  # not one iteration could be done


def picture(outputs: Mapping[str, NDArray[Any]], inputs: Mapping[str, Any], size: Sizes) -> altair.TopLevelMixin:
    """Draw the pressure half-way up the box, and what is left of the equation there."""
    import altair

    from mptune.show import map_of

    shape = (size.nz, size.ny, size.nx)
    pressure = np.asarray(outputs["x"], np.float64).reshape(shape)[size.nz // 2]
    left = np.abs(remainder(outputs["x"], inputs)).reshape(shape)[size.nz // 2]
    largest = float(left.max()) or 1.0
    extreme = float(np.abs(pressure).max()) or 1.0
    maps = (
        map_of(pressure, "pressure", scheme="redblue", domain=(-extreme, 0, extreme)),
        map_of(
            np.maximum(left, largest * 1e-4), "|b - A x|", scheme="magma", domain=(largest * 1e-4, largest), log=True
        ),
    )
    return altair.hconcat(*maps).resolve_scale(fill="independent")


application = Application(
    name="conjugate_gradient",
    description="3-D Poisson problem by conjugate gradients, judged by the residual",
    kernels=[spmv, dot, update, precondition],
    shared=[
        CategoricalParameter("method", ["plain", "refined"]),
        OrdinalParameter("inner_tolerance", [1e-1, 1e-2, 1e-3, 1e-4]),
        # Of what is given, and of x.
        PrecisionParameter("system_type", ["fp64", "fp32"]),
        *(PrecisionParameter(name, TYPES) for name in INNER_TYPES),
    ],
    buffers=[
        Buffer("values", NONZEROS, precision="system_type"),
        Buffer("columns", NONZEROS, dtype="int32"),
        Buffer("starts", f"{ROWS} + 1", dtype="int32"),
        Buffer("b", ROWS, precision="system_type"),
        Buffer("x", ROWS, precision="system_type"),
        Buffer("inverse", ROWS, precision="inverse_type"),
        Scratch("remaining", ROWS, precision="system_type"),
        Scratch("matrix", NONZEROS, precision="matrix_type"),
        Scratch("r", ROWS, precision="residual_type"),
        Scratch("d", ROWS, precision="correction_type"),
        Scratch("p", ROWS, precision="direction_type"),
        Scratch("q", ROWS, precision="direction_type"),
        Scratch("partial", PARTIALS, precision="fp64"),
    ],
    constraints=[
        "method == 'refined' or inner_tolerance == 0.1",
        # Nothing of the inner solve needs more digits than the system has.
        *(f"sizeof({name}) <= sizeof(system_type)" for name in INNER_TYPES),
        # Corrections are of use where something about them is narrow.
        "method == 'plain' or "
        f"{' + '.join(f'sizeof({name})' for name in INNER_TYPES)} < {len(INNER_TYPES)} * sizeof(system_type)",
    ],
    sizes={
        "smoke": {"nx": 13, "ny": 11, "nz": 7, "digits": 6, "iterations": 200},
        "default": {"nx": 48, "ny": 48, "nz": 48, "digits": 6, "iterations": 600},
        "paper": {"nx": 160, "ny": 160, "nz": 160, "digits": 6, "iterations": 2000},
    },
    inputs=inputs,
    steps=steps,
    outputs=["x"],
    metric=residual,
)
