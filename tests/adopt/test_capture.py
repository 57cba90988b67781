"""Programs that run on the processor, and what is recorded of them."""

from pathlib import Path

import numpy as np
import pytest

from mptune.adopt.capture import Capture, Place, Scalar, capture
from mptune.adopt.parsing import SourceFile
from mptune.adopt.running import Built, build

PROGRAMS = Path(__file__).parent / "programs"


def compiled(*names: str) -> Built:
    paths = [PROGRAMS / name for name in names]
    return build(
        [path for path in paths if path.suffix != ".h"], [SourceFile.read(p) for p in paths], optimisation="-O1"
    )


@pytest.fixture(scope="session")
def rod(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(compiled("rod.cu"), ["300", "7"], tmp_path_factory.mktemp("rod"))


def steps_of_rod(n: int, steps: int) -> np.ndarray:
    width = 1.0 / (n + 1)
    now = np.sin(np.pi * (np.arange(n) + 1) * width)
    for _ in range(steps):
        wide = np.concatenate([[0.0], now, [0.0]])
        now = now + 0.25 * (wide[:-2] - 2.0 * now + wide[2:])
    return now


def test_a_program_runs_and_its_check_passes(rod: Capture) -> None:
    assert rod.check == "passed"
    assert rod.differences == ()
    assert rod.left_out == ()
    assert [launch.kernel for launch in rod.launches()] == ["warm"] + ["diffuse"] * 7


def test_launches_say_what_they_were_given(rod: Capture) -> None:
    first = next(rod.launches("diffuse"))
    assert (first.grid, first.block, first.shared_bytes) == ((3, 1, 1), (128, 1, 1), 0)
    assert first.types == ("int", "double", "const double*", "double*")
    assert first.arguments == (
        Scalar("i4", (300).to_bytes(4, "little")),
        Scalar("f8", np.float64(0.25).tobytes()),
        Place(0, 0),
        Place(1, 0),
    )
    assert [a.value for a in first.arguments if isinstance(a, Scalar)] == [300, 0.25]
    assert (first.file, first.line) == (PROGRAMS / "rod.cu", 31)
    assert [launch.arguments[2] for launch in rod.launches("diffuse")] == [Place(i % 2, 0) for i in range(7)]


def test_the_data_are_those_of_the_arithmetic(rod: Capture) -> None:
    kept = rod.kept_launches("diffuse")
    assert 3 <= len(kept) < 7
    numbers = [number for number, launch in enumerate(rod.launches("diffuse")) if launch.has_contents]
    assert numbers[0] == 0
    assert numbers[-1] == 6
    for number, launch in zip(numbers, kept, strict=True):
        source, target = (a.allocation for a in launch.arguments[2:] if isinstance(a, Place))
        assert launch.changed == {target}
        before, after = launch.before[source], launch.after[target]
        assert before is not None
        assert after is not None
        np.testing.assert_allclose(rod.contents(before).view(np.float64), steps_of_rod(300, number), rtol=1e-14)
        np.testing.assert_allclose(rod.contents(after).view(np.float64), steps_of_rod(300, number + 1), rtol=1e-14)


def test_what_the_program_takes_back_is_its_output(rod: Capture) -> None:
    (output,) = rod.outputs
    assert output.source == Place(1, 0)
    assert output.contents is not None
    np.testing.assert_allclose(rod.contents(output.contents).view(np.float64), steps_of_rod(300, 7), rtol=1e-13)
