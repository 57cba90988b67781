"""The types of 16 bits that stand in for CUDA's, against those of ml_dtypes."""

from pathlib import Path

import numpy as np
import pytest
from prelude_library import assert_same, awkward_values

from mptune.adopt.parsing import SourceFile
from mptune.adopt.running import build, run
from mptune.data.conversion import round_to
from mptune.precision import PRECISIONS

PROGRAM = Path(__file__).parents[1] / "adopt" / "programs" / "short_types.cu"


@pytest.mark.full
def test_all_values_and_what_lies_between_them_are_rounded_to_nearest_even(tmp_path: Path) -> None:
    values = awkward_values(np.random.default_rng(0), 5_000)
    values.tofile(tmp_path / "values.bin")
    (tmp_path / "files").mkdir()
    built = build([PROGRAM], [SourceFile.read(PROGRAM)])
    ran = run(built, [str(tmp_path / "values.bin")], writes=tmp_path / "files")
    found = np.fromfile(ran.files["rounded.bin"]).reshape(-1, 4).T
    with np.errstate(all="ignore"):
        narrow = values.astype(np.float32)
        for got, given, name in zip(found, (values, values, narrow, narrow), ("fp16", "bf16") * 2, strict=True):
            # (ml_dtypes rounds a double to a float first.)
            rounded = given.astype(PRECISIONS[name].dtype) if given is narrow else round_to(given, PRECISIONS[name])
            assert_same(got, rounded.astype(np.float64), given)
