"""conjugate_gradient against SciPy's solvers, in types that suffice and in types that do not."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from application_runs import run_once
from numpy.typing import NDArray

from mptune.kernel import Application, Sizes
from mptune.source.loading import load_tunable
from mptune.tuning import tune

NARROW = ("matrix_type", "inverse_type", "residual_type", "correction_type", "direction_type")
#: Fast on a processor, and compiled once.
LAUNCHES = {"dot.block_size": 1, "dot.blocks": 2, "dot.vector_width": 8, "spmv.rows_per_thread": 4}


@pytest.fixture(scope="module")
def app() -> Application:
    found = load_tunable("conjugate_gradient")
    assert isinstance(found, Application)
    return found


@pytest.fixture(scope="module")
def module(app: Application) -> ModuleType:
    return sys.modules[app.steps.__module__]


def inner(name: str) -> dict[str, str]:
    """Return parameters for an inner solve in one type, but for scalar products."""
    wide = name if name == "fp64" else "fp32"
    return {**dict.fromkeys((*NARROW, "spmv.sum_type"), name), "update.scalar_type": wide, "dot.sum_type": wide}


def smoke(app: Application, **sizes: int) -> Sizes:
    """Return the sizes of the preset with some replaced, and ten digits asked for."""
    return app.resolve_sizes("smoke", {"digits": 10, **sizes})


def box(app: Application, nx: int, ny: int, nz: int) -> Sizes:
    return smoke(app, nx=nx, ny=ny, nz=nz)


def system(app: Application, sizes: Sizes, seed: int = 5) -> dict[str, Any]:
    return dict(app.inputs(np.random.default_rng(seed), sizes))


def matrix(given: Mapping[str, Any]) -> scipy.sparse.csr_matrix:
    rows = len(given["b"])
    return scipy.sparse.csr_matrix((given["values"], given["columns"], given["starts"]), shape=(rows, rows))


def solve(
    app: Application, values: Mapping[str, Any], sizes: Sizes, given: Mapping[str, Any] | None = None
) -> tuple[NDArray[np.float64], float, int]:
    """Return x, the error, and the iterations, one product with the matrix each."""
    given = system(app, sizes) if given is None else given
    outputs, launched, _ = run_once(app, {**LAUNCHES, **values}, given, sizes)
    x = outputs["x"]
    products = sum(n for one, (n, _) in launched.items() if one.kernel == "spmv" and ("y", "q") in one.buffers)
    return x, app.metric(x, np.empty(0), given), products  # type: ignore[operator]


class TestSystem:
    def test_it_is_symmetric_and_positive_definite(self, app: Application) -> None:
        a = matrix(system(app, box(app, 4, 3, 5)))
        assert a.has_sorted_indices
        assert abs(a - a.T).max() == 0
        assert np.linalg.eigvalsh(a.toarray())[0] > 0

    def test_it_is_made_of_lines_where_the_coefficient_is_1(self, module: ModuleType) -> None:
        def line(n: int) -> scipy.sparse.dia_matrix:
            """Return the matrix of one axis: the surface is half a cell away."""
            diagonal = np.full(n, 2.0)
            diagonal[[0, -1]] += 1 if n > 1 else 2
            return scipy.sparse.diags([diagonal, -np.ones(n - 1), -np.ones(n - 1)], [0, 1, -1], shape=(n, n))

        for nz, ny, nx in ((5, 3, 4), (2, 1, 3), (1, 1, 1)):
            a = matrix({**module.poisson(np.ones((nz, ny, nx))), "b": np.zeros(nz * ny * nx)})
            expected = scipy.sparse.kronsum(line(nx), scipy.sparse.kronsum(line(ny), line(nz)))
            assert abs(a - expected).max() <= 1e-14


class TestAnswer:
    def test_it_is_that_of_a_direct_solver(self, app: Application) -> None:
        sizes = smoke(app)
        given = system(app, sizes)
        x, error, iterations = solve(app, {}, sizes, given)
        assert x == pytest.approx(scipy.sparse.linalg.spsolve(matrix(given), given["b"]), rel=1e-7, abs=1e-8)
        assert error <= 1e-10
        assert 10 < iterations < 100

    def test_it_takes_the_iterations_of_another_implementation(self, app: Application) -> None:
        sizes = smoke(app, digits=8)
        given = system(app, sizes)
        passed: list[int] = []
        _, failed = scipy.sparse.linalg.cg(
            matrix(given),
            given["b"],
            rtol=0.5e-8,
            M=scipy.sparse.diags(given["inverse"]),
            callback=lambda _: passed.append(1),
        )
        assert not failed
        assert solve(app, {}, sizes, given)[2] == pytest.approx(len(passed), abs=1)

    @pytest.mark.parametrize("extents", [(1, 1, 1), (1, 1, 2), (3, 1, 2), (5, 7, 3), (1, 33, 1)])
    def test_boxes_of_any_shape(self, app: Application, extents: tuple[int, int, int]) -> None:
        sizes = box(app, *extents)
        given = system(app, sizes)
        x, error, _ = solve(app, {}, sizes, given)
        assert error <= 1e-10
        dense = matrix(given).toarray()
        assert x == pytest.approx(np.linalg.solve(dense, given["b"]), rel=1e-7, abs=1e-8)


class TestTypes:
    def test_corrections_are_of_use_where_something_is_narrow(self, app: Application) -> None:
        space = app.search_space(smoke(app)).restrict(app.baseline_values())
        some = space.configurations(np.unique(np.linspace(0, space.size - 1, 200).astype(np.int64)))
        assert {(c["method"], c["inner_tolerance"]) for c in some} == {("plain", 0.1)}
        narrow = app.search_space(smoke(app)).restrict({"matrix_type": ["fp32"], "system_type": ["fp64"]})
        some = narrow.configurations(np.unique(np.linspace(0, narrow.size - 1, 200).astype(np.int64)))
        assert {c["method"] for c in some} == {"plain", "refined"}

    @pytest.mark.full
    def test_fp32_stops_getting_better_and_refinement_does_not(self, app: Application) -> None:
        sizes = smoke(app)
        _, plain, _ = solve(app, inner("fp32"), sizes)
        _, refined, _ = solve(app, {**inner("fp32"), "method": "refined", "inner_tolerance": 1e-3}, sizes)
        assert refined <= 1e-10 < 1e-8 < plain < 1e-5

    @pytest.mark.full
    def test_refinement_gets_there_from_half_precision(self, app: Application) -> None:
        sizes = smoke(app)
        chosen = {**inner("fp32"), "matrix_type": "fp16", "inverse_type": "fp16", "direction_type": "fp16"}
        _, error, iterations = solve(app, {**chosen, "method": "refined"}, sizes)
        assert error <= 1e-10
        assert iterations > solve(app, {}, sizes)[2]

    @pytest.mark.full
    def test_types_that_do_not_converge_end_with_an_honest_error(self, app: Application) -> None:
        sizes = smoke(app, iterations=10_000)
        x, error, iterations = solve(app, inner("bf16"), sizes)
        assert iterations < 300
        assert np.isfinite(x).all()
        assert 1e-4 < error < 10

    @pytest.mark.parametrize("change", [("values", -1.0), ("values", math.nan), ("inverse", math.inf)])
    def test_what_cannot_be_solved_ends_with_no_solution(self, app: Application, change: tuple[str, float]) -> None:
        sizes = box(app, 5, 4, 3)
        given = system(app, sizes)
        name, factor = change
        x, _, iterations = solve(app, {}, sizes, {**given, name: given[name] * factor})
        assert iterations <= 1
        assert not x.any()


@pytest.mark.parametrize("extents", [(1, 1, 1), (7, 1, 1), (13, 11, 7)])
@pytest.mark.parametrize(
    "launch", [(1, 2, 1), (1, 512, 8), (64, 2, 4), (64, 32, 8), (256, 512, 2)], ids=lambda launch: f"{launch}"
)
def test_scalar_products(app: Application, launch: tuple[int, int, int], extents: tuple[int, int, int]) -> None:
    def products(run: Any, size: Sizes) -> None:
        run.fill(run.partial, math.nan)
        run.dot(x=run.b, y=run.inverse, partial=run.partial)
        run.fill(run.x, run.read(run.partial).sum())

    sizes = box(app, *extents)
    given = system(app, sizes)
    block_size, blocks, vector_width = launch
    values = {"dot.block_size": block_size, "dot.blocks": blocks, "dot.vector_width": vector_width}
    outputs, _, _ = run_once(app.changed(steps=products), values, given, sizes)
    assert outputs["x"] == pytest.approx(given["b"] @ given["inverse"], rel=1e-12)


@pytest.mark.full
def test_tuning(app: Application) -> None:
    small = app.changed(sizes={"default": {"nx": 5, "ny": 4, "nz": 3, "digits": 6, "iterations": 200}})
    settings = {"backend": "host", "max_error": 1e-6, "budget": 4, "verify": 0, "on_warning": lambda _: None}
    run = tune(small, **settings)  # type: ignore[arg-type]
    assert run.baseline is not None
    assert run.best is not None
    assert run.best.error <= 1e-6
    assert run.best.metric("launches.spmv") >= 5
