"""Constructs of CUDA's runtime and language: each program computes what NumPy does, and is adopted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mptune.adopt.adopting import AdoptSettings, adopt
from mptune.adopt.reading import read
from mptune.adopt.running import build, run

PROGRAMS = Path(__file__).parent / "programs" / "constructs"
X = np.arange(256) / 7.0


@dataclasses.dataclass(frozen=True)
class Construct:
    """What a program prints, and the kernels that are tuned and that stay as they are."""

    result: Callable[[], NDArray[np.float64]]
    kernels: tuple[str, ...]
    left: tuple[str, ...] = ()


def _standard_library() -> NDArray[np.float64]:
    low, high = np.minimum(X, X[::-1]), np.maximum(X, X[::-1])
    total = 0.5 * (low + high + np.sqrt(low + high)) + 3 * np.abs(low - high)
    return np.asarray(total + np.exp(-low) + np.clip(high, 0.0, 1.0))


def _language() -> NDArray[np.float64]:
    y = np.hypot(X, 2.0) + (1.0 + X / 64.0) ** 10 + np.arange(256) % 2
    return -2.0 * np.abs((0.75 * y + 0.75).reshape(2, 128)[:, ::-1].ravel() - X)


def _pitched() -> NDArray[np.float64]:
    slices = (np.arange(540) % 101 / 8.0).reshape(3, 180)
    return np.asarray(0.5 * slices.sum(0))


def _texture() -> NDArray[np.float64]:
    """Linear filtering as the programming guide has it: weights of 8 bits around the centres of texels."""
    width, height = 32, 8
    i, j = np.meshgrid(np.arange(width), np.arange(height))
    values = (np.arange(256) % 37 / 8.0).reshape(height, width)
    shares = (np.arange(256) * 7 % 256 / 255.0).reshape(height, width)

    def filtered(
        texels: NDArray[np.float64],
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        place_x: Callable[[NDArray[np.int64]], NDArray[np.int64]],
        place_y: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    ) -> NDArray[np.float64]:
        x, y = x - 0.5, y - 0.5
        first, row = np.floor(x).astype(int), np.floor(y).astype(int)
        a, b = np.round((x - first) * 256) / 256, np.round((y - row) * 256) / 256
        at = [[texels[place_y(row + m), place_x(first + n)] for n in (0, 1)] for m in (0, 1)]
        near, far = ((1 - a) * line[0] + a * line[1] for line in at)
        return np.asarray((1 - b) * near + b * far)

    def clamped(extent: int) -> Callable[[NDArray[np.int64]], NDArray[np.int64]]:
        return lambda place: np.clip(place, 0, extent - 1)

    def mirrored(place: NDArray[np.int64]) -> NDArray[np.int64]:
        turn = place % (2 * height)
        return np.where(turn < height, turn, 2 * height - 1 - turn)

    inside = filtered(values, i + 0.75, j - 0.25, clamped(width), clamped(height))
    around = filtered(shares, i + 0.25 + width, -(j + 0.5), lambda place: place % width, mirrored)
    return np.asarray(4 * (inside + 0.5 * around + 2 * values)).ravel()


CONSTRUCTS = {
    "clocks": Construct(lambda: 4 * X, ("twice",), ("timed",)),
    "graph": Construct(lambda: 3 * 0.75 * X, ("add",)),
    "lambda": Construct(lambda: 3 * (X + X[::-1]) + X, ("inner",), ("each",)),
    "language": Construct(_language, ("first", "second")),
    "pitched": Construct(_pitched, ("halve",), ("add",)),
    "pointers": Construct(lambda: 2 * X**2 + 0.125 + X + 0.25, ("run",)),
    "printed": Construct(lambda: 3 * X + 0.5, ("scale",)),
    "shared_of_two_types": Construct(lambda: 2 * X.reshape(2, 128)[:, ::-1].ravel(), ("both",)),
    "standard_library": Construct(_standard_library, ("close",), ("work",)),
    "texture": Construct(_texture, ("scale",), ("sample",)),
}


@pytest.mark.full
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_a_construct_computes_what_numpy_does_and_is_adopted(name: str, tmp_path: Path) -> None:
    construct = CONSTRUCTS[name]
    program = read([PROGRAMS / f"{name}.cu"])
    built = build(program.sources, program.files)
    printed = run(built, [], writes=tmp_path).output.splitlines()
    found = np.array([float(line) for line in printed if "thread" not in line])
    np.testing.assert_allclose(found, construct.result(), rtol=1e-6 if name == "texture" else 1e-12)
    _, document = adopt(AdoptSettings((PROGRAMS / f"{name}.cu",), backend="host"), tmp_path / name)
    assert tuple(kernel["name"] for kernel in document["kernels"]) == construct.kernels
    left = tuple(note.split()[0] for note in document["notes"] if "not adopted" in note)
    assert left == construct.left
    assert max(document["errors"].values()) < 1e-14
