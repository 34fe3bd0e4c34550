"""How a fit meets its data: held or streamed, here or on a cluster, and what a work folder knows it by."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor import __version__
from icofactor.checkpoint import Arrays, Checkpoint, digest
from icofactor.cluster import Cluster, active_client, check_client
from icofactor.design import Design
from icofactor.inputs import Input, Inspector, SitesBySubjects, look
from icofactor.running import Here, Runner
from icofactor.sources import is_held, source_of
from icofactor.starts import RandomState, seeds_of
from icofactor.statistics import BlockTask, Gathering, Rows, Statistics, join, map_blocks, over_blocks
from icofactor.streaming import Streamed

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


class Kept(SitesBySubjects):
    """Held data in a run that can be resumed: each pass over them is one piece."""

    def __init__(self, X: Any, mask: np.ndarray | None, checkpoint: Checkpoint) -> None:
        super().__init__(X, mask)
        self._plain, self.checkpoint = SitesBySubjects(X, mask), checkpoint

    def over_blocks(
        self, task: BlockTask, shared: Mapping[str, Any], own: Sequence[Any] = (), stage: str | None = None
    ) -> Iterator[tuple[Rows, Arrays]]:
        if stage is None:
            yield from over_blocks(self._plain, task, shared, own)
            return

        def whole() -> Arrays:
            return join([found for _, found in over_blocks(self._plain, task, shared, own)])

        yield slice(0, self.shape[0]), self.checkpoint.piece(stage, whole)


def gather_held(view: SitesBySubjects, design: Design, inspector: Inspector, checkpoint: Checkpoint) -> Statistics:
    """Statistics of held data, and everything the inspector wants to know; one pass over X, or a piece kept of it."""

    def gather() -> Arrays:
        gathering = Gathering(design)
        looked = lambda rows, x: (look(x), gathering.share(rows, x))
        for rows, (seen, share) in map_blocks(view, looked):
            inspector.accept(rows, seen)
            gathering.add(rows, share)
        stats = gathering.statistics()
        arrays = {name: np.asarray(getattr(stats, name)) for name in ("L", "sq_norm", "energy", "counts", "root_L")}
        K = {"K_data": stats.K.data, "K_indices": stats.K.indices, "K_indptr": stats.K.indptr}
        return {**arrays, **K, "n_sites": np.array(stats.n_sites), **inspector.summary()}

    found = checkpoint.piece("statistics", gather)
    inspector.recall(found)
    n_k = design.n_columns
    K = sp.csr_array((found["K_data"], found["K_indices"], found["K_indptr"]), shape=(n_k, n_k))
    arrays = {name: found[name] for name in ("L", "energy", "counts", "root_L")}
    return Statistics(K=K, **arrays, sq_norm=float(found["sq_norm"]), n_sites=int(found["n_sites"]), faces=design.faces)
