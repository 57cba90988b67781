"""The connection to a Dask cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Self

from mptune.backends import get_backend
from mptune.errors import MptuneError
from mptune.evaluators.devices import runnable_backend

__all__ = ["Cluster"]

_CONNECT_S: Final = 20.0
_PAUSE_S: Final = 0.5


class Cluster:
    """A Dask cluster, for as long as the connection is open.

    Args:
        address: the scheduler's, such as ``tcp://login1:8786``, or the path of the JSON file it wrote that into.

    Raises:
        MptuneError: Dask is not installed, or no scheduler answers there.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise MptuneError(f'scheduler {address!r}: Dask is not installed: pip install "mptune[dask]"') from None
        self.address = address
        where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
        try:
            self._client = Client(**where, timeout=_CONNECT_S, set_as_default=False, name="mptune")
        except (OSError, ValueError) as error:
            raise MptuneError(f"no Dask scheduler answers at {address!r}: {error}") from error

    def threads(self) -> dict[str, int]:
        """Return the threads of each worker there is, by address.

        Raises:
            MptuneError: the scheduler does not answer any more.
        """
        try:
            return dict(self._client.nthreads())
        except (OSError, RuntimeError) as error:
            raise MptuneError(
                f"the Dask scheduler at {self.address!r} does not answer any more ({error}); "
                "what has been measured is in the run file, and --resume goes on from there"
            ) from error

    def backend(self, name: str, limit_s: float) -> str:
        """Return the name of the backend, "auto" as the workers resolve it.

        Args:
            name: "auto" or a backend's name.
            limit_s: how long to wait for the first worker.

        Raises:
            MptuneError: there is no such backend, no worker has come, or "auto" is not the same for all of them.
        """
        if name != "auto":
            return get_backend(name).name
        deadline = time.monotonic() + limit_s
        while not self.threads():
            if time.monotonic() > deadline:
                raise MptuneError(f"no worker joined the Dask scheduler at {self.address!r} within {limit_s:g} s")
            time.sleep(_PAUSE_S)
        found: dict[str, Any] = self._client.run(runnable_backend, name, on_error="return")
        for worker, answer in found.items():
            if isinstance(answer, Exception):
                raise MptuneError(f"Dask worker {worker}: {answer}") from answer
        if len(set(found.values())) > 1:
            told = ", ".join(f"{worker} {answer}" for worker, answer in found.items())
            raise MptuneError(f"backend auto is not the same for all Dask workers ({told}): name it with --backend")
        return str(next(iter(found.values())))

    def submit(self, key: str, worker: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the future of a call on a worker, and on that one only."""
        return self._client.submit(
            function, *arguments, key=key, workers=[worker], allow_other_workers=False, pure=False
        )

    def close(self) -> None:
        """Close the connection; what was submitted and has not begun is forgotten."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
