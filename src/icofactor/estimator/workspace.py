"""How a fit meets its data: held or streamed, here or on a cluster, and what a work folder knows it by."""

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
from icofactor.streaming.passes import Kept, Streamed
from icofactor.streaming.runners import Cluster, Here, Runner, active_client, check_client
from icofactor.streaming.source import SitesBySubjects, is_held, source_of

View = SitesBySubjects | Streamed
_NOT_SETTINGS = ("mesh", "hemi", "mask", "random_state", "verbose")
"""Parameters of the estimator that change no piece, or are described better by what they led to."""


@dataclass(frozen=True, eq=False)
class Workplace:
    """Where and with what a fit is made.

    Attributes
    ----------
    view : X as sites × subjects, masked sites left out
    checkpoint : finished pieces
    runner : who runs the starts; None where they are simply run
    seeds : of all random numbers, the same when a run is resumed
    """

    view: View
    checkpoint: Checkpoint
    runner: Runner | None
    seeds: np.random.SeedSequence


def open_view(given: Input, mask: np.ndarray | None, client: Any = None) -> View:
    """X as it is passed over: held ones in this process, others part by part, on the cluster of `client` if any."""
    client = active_client(given.X) if client is None else client
    if client is not None:
        check_client(client)
        return Streamed(source_of(given.X, given.cohort), mask, Cluster(client))
    if is_held(given.X):
        return SitesBySubjects(given.X, mask)
    return Streamed(source_of(given.X, given.cohort), mask)


def open_workplace(
    given: Input,
    mask: np.ndarray | None,
    settings: Mapping[str, Any],
    random_state: RandomState,
    work_dir: str | os.PathLike[str] | None,
    client: Any,
) -> Workplace:
    """Everything a fit needs besides its settings; refuses a work folder of another run."""
    view, seeds = open_view(given, mask, client), seeds_of(random_state)
    cluster = isinstance(view, Streamed) and view.runner.remote
    if work_dir is None:
        return Workplace(view, Checkpoint(None, {}), view.runner if cluster else None, seeds)  # type: ignore[union-attr]
    checkpoint = Checkpoint(work_dir, _run(given, mask, view, settings, random_state, seeds))
    if random_state is None:
        kept = checkpoint.piece("seed", lambda: {"entropy": np.array(str(seeds.entropy))})
        seeds = np.random.SeedSequence(int(str(kept["entropy"])))
    if isinstance(view, Streamed):
        view.runner.checkpoint = checkpoint
        return Workplace(view, checkpoint, view.runner if cluster else Here(checkpoint), seeds)
    return Workplace(Kept(given.X, mask, checkpoint), checkpoint, Here(checkpoint), seeds)


def _run(
    given: Input,
    mask: np.ndarray | None,
    view: View,
    settings: Mapping[str, Any],
    random_state: RandomState,
    seeds: np.random.SeedSequence,
) -> dict[str, Any]:
    """What makes a run this run."""
    if isinstance(view, Streamed):
        values = view.source.identity()
        parts = digest(*(np.array([part.where.start, part.where.stop]) for part in view.parts))
    else:
        values, parts = digest(given.X), None
    return {
        "command": "fit",
        "icofactor": __version__,
        "settings": {name: _plain(value) for name, value in settings.items() if name not in _NOT_SETTINGS},
        "random_state": None if random_state is None else [str(seeds.entropy), list(seeds.spawn_key)],
        "subjects": int(given.X.shape[0]),
        "sites": {"n": given.sites.n, "places": digest(given.sites.coordinates, given.sites.deepest)},
        "mask": None if mask is None else digest(mask),
        "values": values,
        "parts": parts,
    }


def _plain(value: Any) -> Any:
    """A parameter as JSON holds it."""
    if isinstance(value, np.generic):
        return value.item()
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value
