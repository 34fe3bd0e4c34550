"""The maps that an estimator gets, as it passes over them: where they lie, and who works on them."""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.streaming.passes import Stream
from icofactor.streaming.runners import Cluster, Runner, Threads, active_client, check_client
from icofactor.streaming.source import Adjusted, Adjustment, Subset, source_of


def open_stream(
    X: Any, mask: np.ndarray | None, client: Any = None, adjustment: Adjustment | None = None
) -> Stream:
    """Maps X (subjects × sites) as they are passed over, on the cluster of `client` if there is
    one.

    `adjustment`, of the sites that `mask` leaves, is made on the way.
    """
    client = active_client(X) if client is None else client
    runner: Runner = Threads()
    if client is not None:
        check_client(client)
        runner = Cluster(client)
    source = source_of(X)
    source = source if mask is None else Subset(source, mask)
    return Stream(source if adjustment is None else Adjusted(source, adjustment), runner)
