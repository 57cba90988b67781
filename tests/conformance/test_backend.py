"""Every backend that can run here passes the conformance tests; so does one as limited as OpenCL makes them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mptune.backends import BACKENDS
from mptune.backends.base import Backend
from mptune.testing.backends import BackendConformance


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPTUNE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


for _class in BACKENDS.values():
    _test = type(f"Test{_class.name.title()}", (BackendConformance,), {"backend_class": _class, "__module__": __name__})
    _found = _class.availability()
    _test = pytest.mark.skipif(not _found.can_run, reason=_found.reason or "can run")(_test)
    globals()[_test.__name__] = pytest.mark.gpu(_test) if _class.name in ("cuda", "hip") else _test
del _test


def test_a_backend_is_registered_under_its_name():
    for name, cls in BACKENDS.items():
        assert issubclass(cls, Backend)
        assert cls.name == name


def test_the_suite_does_not_import_pytest():
    subprocess.run([sys.executable, "-c", "import sys, mptune.testing.backends; assert 'pytest' not in sys.modules"])
