"""How a fit meets its data: where they lie, where they are worked on, and by what a work folder recognises a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from icofactor import __version__
from icofactor.estimator.inputs import Input
from icofactor.factorization.starts import RandomState, seeds_of
from icofactor.streaming.checkpoint import Checkpoint, digest
from icofactor.streaming.passes import Stream
from icofactor.streaming.runners import Cluster, Runner, Threads, active_client, check_client
from icofactor.streaming.source import Adjusted, Adjustment, Subset, source_of

_NOT_SETTINGS = ("mesh", "hemi", "mask", "weights", "random_state", "harmonize", "verbose")
"""Parameters of the estimator that change no piece, or are described better by what they led to."""


@dataclass(frozen=True, eq=False)
class Workplace:
    """Where and with what a fit is made.

    Attributes
    ----------
    X : the maps as sites × subjects, masked sites left out
    checkpoint : finished pieces
    runner : where the starts run; None: in this process, not kept
    seeds : of all random numbers, the same when a run is resumed
    """

    X: Stream
    checkpoint: Checkpoint
    runner: Runner | None
    seeds: np.random.SeedSequence


def open_stream(X: Any, mask: np.ndarray | None, client: Any = None, adjustment: Adjustment | None = None) -> Stream:
    """Maps X (subjects × sites) as they are passed over, on the cluster of `client` if there is one.

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


def open_workplace(
    given: Input,
    mask: np.ndarray | None,
    settings: Mapping[str, Any],
    random_state: RandomState,
    work_dir: str | os.PathLike[str] | None,
    client: Any,
    earlier: Any = None,
) -> Workplace:
    """Everything a fit needs besides its settings; refuses a work folder of another run."""
    X, seeds = open_stream(given.X, mask, client), seeds_of(random_state)
    if work_dir is None:
        return Workplace(X, X.runner.checkpoint, X.runner if X.runner.remote else None, seeds)
    run = _run(given, mask, X, settings, random_state, seeds)
    checkpoint = Checkpoint(work_dir, run if earlier is None else {**run, "earlier": earlier.identity})
    if random_state is None:
        kept = checkpoint.piece("seed", lambda: {"entropy": np.array(str(seeds.entropy))})
        seeds = np.random.SeedSequence(int(str(kept["entropy"])))
    X.runner.checkpoint = checkpoint
    return Workplace(X, checkpoint, X.runner, seeds)


def _run(
    given: Input,
    mask: np.ndarray | None,
    X: Stream,
    settings: Mapping[str, Any],
    random_state: RandomState,
    seeds: np.random.SeedSequence,
) -> dict[str, Any]:
    """What makes a run this run."""
    return {
        "command": "fit",
        "icofactor": __version__,
        "settings": {name: _plain(value) for name, value in settings.items() if name not in _NOT_SETTINGS},
        "random_state": None if random_state is None else [str(seeds.entropy), list(seeds.spawn_key)],
        "subjects": X.shape[1],
        "sites": {"n": given.sites.n, "places": digest(given.sites.coordinates, given.sites.deepest)},
        "mask": None if mask is None else digest(mask),
        **({} if given.sites.weights is None else {"weights": digest(given.sites.weights)}),
        **({} if given.measures is None else {"measures": given.measures.record}),
        "values": X.source.identity(),
        "slices": digest(np.array([[part.start, part.stop] for part in X.source.slices()])),
    }


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, np.generic):
        return value.item()
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value
