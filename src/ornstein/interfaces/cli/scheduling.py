"""Dask for the command line: a scheduler by its address or on this machine."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ornstein.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client

PATIENCE = "10s"
# Even without a dashboard Dask serves pages on the state of the work, in the clear.
NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


@contextmanager
def scheduler(address: str) -> Iterator[Client]:
    """A client of the scheduler at `address`; "local:4" starts one with four workers here and ends
    it again.

    A scheduler runs whatever a client sends it, so the local one talks only to holders of a
    certificate that is made for it and kept in memory: no other account of this machine has it.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise InputError("--scheduler needs Dask: pip install 'ornstein[cluster]'") from error
    local = re.fullmatch(r"local:(\d+)", address)
    if local:
        _require_cryptography()
        if not 1 <= int(local[1]) <= 1024:
            raise InputError(f"--scheduler local:{local[1]} must ask for 1 to 1024 workers")
        with (
            dask.config.set(NO_PAGES),
            LocalCluster(
                n_workers=int(local[1]),
                threads_per_worker=1,
                dashboard_address=None,
                security=True,
                scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                silence_logs=50,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    if "://" not in address:
        raise InputError(
            f"--scheduler must be an address such as tcp://host:8786, or local:4; got {address!r}"
        )
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(f"no Dask scheduler answers at {address} within {PATIENCE}") from error
    with client:
        yield client


def _require_cryptography() -> None:
    if importlib.util.find_spec("cryptography") is None:
        raise InputError(
            "--scheduler local:N needs the package cryptography, for its certificates: pip install"
            " 'ornstein[cluster]'"
        )
