"""Headers of a user's: what they hold is part of the keys of binaries and of trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mptune.backends.base import CompileOptions
from mptune.backends.binary_cache import BinaryCache
from mptune.backends.host_compiler import HostCompiler
from mptune.cpp.prelude import prelude, with_headers
from mptune.kernel import Application, Buffer, Kernel, Out, Scalar
from mptune.measure.device import DeviceEvaluator
from mptune.space.parameters import OrdinalParameter


def including(line: str) -> Kernel:
    return Kernel(
        name="answer",
        parameters=[OrdinalParameter("block", [32, 64])],
        arguments=[Out("y", "n", precision="fp64"), Scalar("n", dtype="int32")],
        sizes={"default": {"n": 64}},
        inputs=lambda rng, size: {},
        reference=lambda inputs, size: {"y": np.zeros(size.n)},
        grid=["1"],
        block=["block"],
        template=f"""{line}
extern "C" __global__ void answer(double* y, int n) {{ for (int i = 0; i < n; ++i) y[i] = ANSWER; }}
""",
    )


def test_a_source_that_includes_nothing_is_as_it_was() -> None:
    source = "void f() {}\n"
    assert with_headers(source, ["-O3", "-I", "/no/such/folder"]) == source
    # What no folder has is the compiler's own.
    assert with_headers(f"{source}#include <no_such_header>\n") == f"{source}#include <no_such_header>\n"
    # The prelude is known by its digest.
    known = with_headers(prelude() + source, ["-O3", "-I", "/no/such/folder"])
    assert known.endswith(source)
    assert "headers:" not in known
    assert len(known) < 200


@pytest.mark.parametrize(
    ("line", "how"),
    [
        ('#include "{folder}/one.h"', "-I/nowhere"),
        ("  #  include <one.h> // why", "-isystem {folder}"),
        ('#include "one.h"', "-I{folder}"),
        ('#include "one.h"', "CPATH"),
        ('#include "one.h"', "CXX"),
    ],
)
def test_a_header_counts_with_what_it_includes(
    line: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = tmp_path / "one.h", tmp_path / "sub" / "two.h"
    two.parent.mkdir()
    one.write_text('#pragma once\n#include "sub/two.h"\n#include "one.h"\n')
    two.write_text("#define ANSWER 1\n")
    flags = how.format(folder=tmp_path).split()
    if not how.startswith("-"):
        monkeypatch.setenv(how, {"CPATH": f"{tmp_path}:/usr/nothing", "CXX": f"g++ -I{tmp_path}"}[how])
        flags = []
    source = f"{prelude()}\n{line.format(folder=tmp_path)}\n"
    before = with_headers(source, flags)
    assert "headers:" in before
    assert with_headers(source, flags) == before
    two.write_text("#define ANSWER 2\n")
    assert with_headers(source, flags) != before


@pytest.mark.full
def test_a_changed_header_makes_another_binary_and_another_trial(tmp_path: Path) -> None:
    header = tmp_path / "answer.h"
    kernel = including(f'#include "{header}"')
    sizes = kernel.resolve_sizes()
    configuration = kernel.search_space(sizes).configuration(0)
    application = Application(
        name="filling",
        kernels=[kernel],
        buffers=[Buffer("y", "n", precision="fp64")],
        outputs=["y"],
        sizes={"default": {"n": 64}},
        inputs=lambda rng, size: {},
        steps=lambda run, size: run.answer(y=run.y),
    )
    joint = application.search_space(sizes).configuration(0)
    compiler = HostCompiler(cache=BinaryCache(tmp_path / "cache"))
    source = f'{prelude()}\n#include "{header}"\nextern "C" int answer() {{ return ANSWER; }}\n'
    binaries, keys = [], []
    try:
        for text in ("#define ANSWER 1\n", "#define ANSWER 2\n"):
            header.write_text(text)
            binaries += [compiler.compile(source, "answer", CompileOptions()) for _ in range(2)]
            with (
                DeviceEvaluator(kernel, sizes, "host") as alone,
                DeviceEvaluator(application, application.resolve_sizes(), "host") as whole,
            ):
                keys.append((alone.key_of(configuration), whole.key_of(joint)))
    finally:
        compiler.close()
    assert [binary.cached for binary in binaries] == [False, True, False, True]
    assert binaries[1].image != binaries[3].image
    assert all(one != other for one, other in zip(*keys, strict=True))
