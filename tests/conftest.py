"""Settings for all tests: one BLAS thread, the same hypothesis examples each time, and a cache folder of their own."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings, strategies
from hypothesis.internal.conjecture import providers

from mptune.backends.base import CompileOptions
from tests.tiers import FAST_S, processor_s, slowness
from tests.vendor_compilers import skip_where_missing

# Tests run side by side; more threads of BLAS would only wait for each other.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Workers of pytest-xdist have it; tests choose the width themselves.
os.environ.pop("COLUMNS", None)

# How long examples take to draw says how busy the machine is.
settings.register_profile(
    "mptune",
    deadline=None,
    derandomize="MPTUNE_FRESH_EXAMPLES" not in os.environ,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("mptune")
# Among its examples are constants of all modules that are loaded, which depends on the tests that ran before.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = providers.Constants

# Tests must not leave files in the user's cache, nor pass because of files that are there. All processes of a test run
# share the folder.
if "MPTUNE_CACHE_DIR" not in os.environ:
    os.environ["MPTUNE_CACHE_DIR"] = tempfile.mkdtemp(prefix="mptune-tests-")
    atexit.register(shutil.rmtree, os.environ["MPTUNE_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def _patient() -> Iterator[None]:
    """Let a compilation take four minutes, unless a test says how long: what takes longer is stuck."""
    *others, timeout_s, compilers = CompileOptions.__init__.__defaults__ or ()
    assert timeout_s == 60.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompileOptions.__init__, "__defaults__", (*others, 240.0, compilers))
        yield


@pytest.fixture(scope="session")
def charts() -> None:
    """Load the libraries of charts, and the script of reports, which takes seconds: not the time of who needs them."""
    vl_convert = pytest.importorskip("vl_convert")
    pytest.importorskip("altair")
    from mptune.show.saving import vega

    for convert in (vl_convert.vegalite_to_svg, vl_convert.vegalite_to_png, vl_convert.vegalite_to_pdf):
        convert({"mark": "point", "data": {"values": []}})
    vega()


# -- the fast tier -----------------------------------------------------------------------------------

_shared_s, _began_s = pytest.StashKey[float](), pytest.StashKey[float]()


class _SharedFixtures:
    """Notes the processor time of fixtures that several tests share: it is not the time of the test that came first.

    A plugin of its own, since hooks of this file are not called for fixtures of the whole session.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        stash = request.config.stash
        began, before_s = processor_s(), stash.get(_shared_s, 0.0)
        try:
            return (yield)
        finally:
            # Fixtures that this one asked for have been counted since, and are part of the difference.
            stash[_shared_s] = before_s + processor_s() - began


def pytest_configure(config: pytest.Config) -> None:
    """Have the time of shared fixtures noted."""
    config.pluginmanager.register(_SharedFixtures())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Skip what cannot be compiled here; note the processor time before a test's own fixtures."""
    skip_where_missing(item)
    if getattr(item.obj, "is_hypothesis_test", False):  # type: ignore[attr-defined]
        # In a fresh clone Hypothesis first builds its tables of characters, which takes seconds.
        strategies.text().validate()
    item.stash[_began_s] = processor_s() - item.config.stash.get(_shared_s, 0.0)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail an unmarked test that takes too long for the fast tier."""
    result = yield
    if item.get_closest_marker("full") or item.get_closest_marker("nightly") or shutil.which("g++") is None:
        return result  # other compilers take longer, which is not the test's fault
    took_s = processor_s() - item.config.stash.get(_shared_s, 0.0) - item.stash[_began_s]
    # Coverage slows code down, which the time of other work does not show.
    limit_s = FAST_S * (2.0 if "coverage" in sys.modules else 1.0)
    if took_s > limit_s and took_s > limit_s * slowness():
        pytest.fail(
            f"took {took_s:.1f} s of processor time, of {limit_s:.0f} s ({limit_s * slowness():.1f} s on a machine as "
            "slow or busy as this one is now): mend it, mark it full or nightly, or give few() fewer fast parameters",
            pytrace=False,
        )
    return result
