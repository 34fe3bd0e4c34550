"""--scheduler: work on the blocks of the maps on the workers of a dask cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from icofactor.errors import ArgumentError

# A scheduler that does not answer by then is not there.
SECONDS_TO_CONNECT = 30


def add_scheduler(group: Any) -> None:
    """Add --scheduler."""
    group.add_argument(
        "--scheduler",
        metavar="ADDRESS|FILE",
        help="dask scheduler whose workers read the maps, e.g. tcp://10.0.0.1:8786, or its scheduler file. Workers "
        "must see the same files (default: threads of this machine)",
    )


@contextmanager
def workers(options: argparse.Namespace) -> Iterator[Executor | None]:
    """Give the executor of the cluster that --scheduler names; None without it."""
    if options.scheduler is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        message = "needs dask, which is not installed; run pip install 'icofactor[dask]'"
        raise ArgumentError("scheduler", message) from None
    is_file = Path(options.scheduler).is_file()
    if not is_file and "://" not in options.scheduler:
        message = (
            f"must be an address such as tcp://10.0.0.1:8786, or a file; no {options.scheduler}"
        )
        raise ArgumentError("scheduler", message)
    place = {"scheduler_file" if is_file else "address": options.scheduler}
    try:
        client = Client(**place, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as problem:
        message = f"no dask scheduler answers at {options.scheduler} ({type(problem).__name__})"
        raise ArgumentError("scheduler", message) from None
    with client:
        yield client.get_executor()
