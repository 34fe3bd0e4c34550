"""(d) Fits in memory, refinement, coordinate descent against extrapolated updates, and the GPU against the CPU."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import numpy as np

from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization import engines
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refined, Refinement, refine
from icofactor.factorization._solve import Course
from icofactor.factorization.design import Design
from icofactor.factorization.engines import choose_engine
from icofactor.factorization.methods import method_named
from icofactor.factorization.statistics import Data, Statistics
from icofactor.streaming.runners import one_blas_thread
from icofactor_lab.bench.settings import Bench, Sizes
from icofactor_lab.bench.solvers import torch_path
from icofactor_lab.bench.updates import N_COMPONENTS, prepared, statistics
from icofactor_lab.common.data import Dataset, real_thickness, simulated
from icofactor_lab.common.objective import full_error
from icofactor_lab.common.outcome import Outcome, Row, Table, at_most, not_run
from icofactor_lab.common.timing import interleaved, median, seconds_of, timed

_SPEED, _DESCENT = "LE-PNNMF", "CD-PNNMF"
_FITS: dict[str, float | None] = {"parts": 0.25, "CD-PNNMF": 0.15, "LE-PNNMF": None}
"""Seconds allowed for a fit with engine "auto"."""
_DEVICE_CASES = {
    ("PNNMF", "paper"): 0.060,
    ("LE-PNNMF", "paper"): 0.060,
    ("LE-PNNMF", "default"): 0.120,
    ("PPNMF", "paper"): 0.120,
    ("LE-PPNMF", "default"): 0.120,
    ("CD-PNNMF", "default"): None,
}
"""Seconds allowed for 10⁶ updates on one H200, float64; None where nothing is asked."""


def run(bench: Bench) -> Outcome:
    """The parts, one after the other."""
    sizes, outcome = bench.sizes, Outcome("d", "Refinement, coordinate descent, GPU")
    real = real_thickness(sizes.subjects) if sizes.real else None
    data = real if real is not None else simulated(sizes.mesh_level, sizes.subjects)
    outcome.notes.append(f"{data.size}: {data.name}; {N_COMPONENTS} components; {bench.threads} threads.")
    parts = {"fits": _fits, "refinement": _refinement, "coordinate descent": _descent, "GPU": _device}
    for what, part in parts.items():
        bench.tell(f"(d) {what}")
        part(outcome, data, bench)
    return outcome


# ------------------------------------------------------------------ fits


def _fits(outcome: Outcome, data: Dataset, bench: Bench) -> None:
    """Whole fits of X in memory, as `CorticalFactorization` makes them by default."""

    def fit(method: str, engine: str) -> None:
        model = CorticalFactorization(data.n_components, method=method, engine=engine, mesh=data.sites, random_state=0)
        model.fit(data.Xs)

    works = {f"{method}, {engine}": partial(fit, method, engine) for method in _FITS for engine in ("auto", "cpu")}
    for work in works.values():
        work()  # kernels are loaded
    seconds = interleaved(works, 3 * bench.repeats)
    rows = [
        {"fit": name, "seconds": median(spent), "fastest": min(spent), "slowest": max(spent)}
        for name, spent in seconds.items()
    ]
    outcome.tables.append(Table("Fits in memory, by method and engine", rows))
    for method, goal in _FITS.items():
        if goal is not None:
            what = f"{method} of {data.size}, engine 'auto', seconds"
            outcome.targets.append(at_most(what, median(seconds[f"{method}, auto"]), goal))


# ------------------------------------------------------------------ refinement


def _refinement(outcome: Outcome, data: Dataset, bench: Bench) -> None:
    """A long refinement from the 20 root faces, as in the paper's illustration."""
    steps, faces, n_iter = bench.sizes.refinements
    X = data.Xs.T
    design = Design(data.sites)
    stats = Statistics.from_data(X, design)
    start = multistart(stats, _SPEED, data.n_components, n_starts=10, n_iter=100, random_state=0)
    source, schedule = Data(X, data.sites), Refinement(steps, faces, n_iter)
    ended: dict[str, Refined] = {}
    seconds: dict[str, list[float]] = {"auto": [], "cpu": []}

    def work(engine: str) -> None:
        with one_blas_thread():
            ended[engine] = refine(source, design, stats, start, schedule, engine=engine)

    refine(source, design, stats, start, Refinement(1, faces, 1), engine="cpu")  # the kernels are loaded
    for _ in range(bench.repeats):
        for engine, spent in seconds.items():
            if not spent or sum(spent) + spent[-1] < 2 * bench.budget:
                spent.append(seconds_of(partial(work, engine)))
    rows = [
        {
            "engine": engine,
            "refinements × faces × updates": f"{steps} × {faces} × {n_iter}",
            "seconds": median(seconds[engine]),
            "runs": len(seconds[engine]),
            "columns at the end": refined.design.n_columns,
            "error / variance at the start": start.error / data.variance,
            "error / variance at the end": refined.solution.error / data.variance,
        }
        for engine, refined in ended.items()
    ]
    outcome.tables.append(Table(f"Refinement, {_SPEED}, from {stats.n_columns} faces", rows))
    what = f"{steps} refinements × {faces} faces × {n_iter} updates, {data.size}, engine 'auto', seconds"
    outcome.targets.append(at_most(what, median(seconds["auto"]), 10))


# ------------------------------------------------------------------ coordinate descent


def _descent(outcome: Outcome, data: Dataset, bench: Bench) -> None:
    """How long CD-PNNMF takes to the objective of so many LE-PNNMF updates, from the same starts, on 320 faces."""
    sizes = bench.sizes
    what = f"{_DESCENT} to the objective of {sizes.coarse_updates} {_SPEED} updates, over their time"
    stats = Statistics.from_data(data.Xs.T, Design(data.sites, level=min(2, data.sites.max_level)))
    rows = [row for engine in ("numpy", "cpu") for row in _descent_rows(stats, data, sizes, bench.repeats, engine)]
    note = (
        f"{stats.n_columns} faces, one start, one seed per row. Updates and seconds are those at which {_DESCENT} "
        f"first has an objective at or under that of {sizes.coarse_updates} {_SPEED} updates (default rules, same λ)."
    )
    outcome.tables.append(Table(f"{_DESCENT} against {_SPEED}", rows, note))
    reached = [row["time ratio"] for row in rows if row["engine"] == "cpu"]
    missed = sum(not np.isfinite(r) for r in reached)
    note = "median over seeds, engine 'cpu'" + (f"; {missed} of {len(reached)} seeds never reached it" * bool(missed))
    outcome.targets.append(at_most(what, median(reached), 0.2, note=note))


def _descent_rows(stats: Statistics, data: Dataset, sizes: Sizes, repeats: int, engine: str) -> list[Row]:
    def path(method: str, n_iter: int, seed: int) -> np.ndarray:
        return multistart(
            stats, method, data.n_components, n_starts=1, n_iter=n_iter, tol=0.0, engine=engine, random_state=seed
        ).objectives[0]

    rows = []
    for seed in range(repeats):
        goal = path(_SPEED, sizes.coarse_updates, seed)[-1]
        reached = np.flatnonzero(path(_DESCENT, sizes.coarse_updates, seed) <= goal)
        updates = int(reached[0]) if len(reached) else None
        works = {
            _SPEED: partial(path, _SPEED, sizes.coarse_updates, seed),
            _DESCENT: partial(path, _DESCENT, updates or 0, seed),
        }
        seconds = {name: median(values) for name, values in interleaved(works, repeats).items()}
        rows.append({
            "engine": engine,
            "seed": seed,
            f"{_SPEED} (s)": seconds[_SPEED],
            f"{_DESCENT} updates": updates,
            f"{_DESCENT} (s)": None if updates is None else seconds[_DESCENT],
            "time ratio": np.inf if updates is None else seconds[_DESCENT] / seconds[_SPEED],
        })  # fmt: skip
    return rows


# ------------------------------------------------------------------ GPU


def device_found() -> str | None:
    """The GPU that jax sees, by name; None where there is none."""
    if find_spec("jax") is None or "jax" not in engines.ENGINES:
        return None
    from icofactor.factorization.engines import jax as jax_engine

    if not jax_engine.has_accelerator():
        return None
    import jax

    return str(jax.devices()[0].device_kind)


def _device(outcome: Outcome, data: Dataset, bench: Bench) -> None:
    """A million updates on the GPU and on the CPU, and a peer on the GPU."""
    sizes, threads, device = bench.sizes, bench.threads, device_found()
    if device is None:
        outcome.targets.append(not_run("10⁶ updates on a GPU, seconds", "≤ 0.06", "jax sees no GPU"))
        outcome.notes.append("GPU against CPU: not run, jax sees no GPU.")
        return
    stats, rows = statistics(sizes.subjects), []
    for (name, rules), goal in _DEVICE_CASES.items():
        row = _device_row(stats, name, rules, sizes, bench.repeats)
        rows.append(row)
        what = f"10⁶ updates of {name}, {rules} rules, float64, on one {device}, seconds"
        if goal is not None:
            outcome.targets.append(at_most(what, row["GPU: s per 10⁶ updates"], goal))
    outcome.tables.append(Table(f"GPU ({device}) against CPU ({threads} threads), float64", rows))
    worst = max(row["largest relative difference of objectives"] for row in rows)
    outcome.targets.append(at_most("GPU and CPU objectives: largest relative difference", worst, 1e-6))
    outcome.tables.append(_peer_on_gpu(data, sizes, threads))


def _device_row(stats: Statistics, name: str, rules: str, sizes: Sizes, repeats: int) -> Row:
    method = method_named(name)
    p, state = prepared(stats, method.scheme.name, rules, sizes.device_starts)
    n_updates = sizes.device_starts * sizes.device_updates
    on = {place: choose_engine(place, p, method, N_COMPONENTS, n_updates) for place in ("jax", "cpu")}
    last: dict[str, np.ndarray] = {}

    def work(place: str) -> None:
        last[place] = on[place].iterate(p, method, state, Course(sizes.device_updates)).objectives[:, -1]

    first = seconds_of(lambda: work("jax"))
    work("cpu")
    seconds = interleaved({place: partial(work, place) for place in on}, repeats)
    scale = 1e6 / n_updates
    gpu, cpu = (scale * median(seconds[place]) for place in ("jax", "cpu"))
    return {
        "method": name,
        "rules": rules,
        "GPU: s per 10⁶ updates": gpu,
        "CPU: s per 10⁶ updates": cpu,
        "times faster": cpu / gpu,
        "first call (s)": first,
        "largest relative difference of objectives": float(np.max(np.abs(last["jax"] / last["cpu"] - 1))),
    }


def _peer_on_gpu(data: Dataset, sizes: Sizes, threads: int) -> Table:
    """nmf-torch on the GPU against our fit on this machine."""
    title = f"A peer on the GPU, {data.size}"
    if find_spec("nmf") is None or find_spec("torch") is None:
        return Table(title, [{"solver": "nmf-torch", "note": "not run: nmf-torch is not installed"}])
    import torch

    if not torch.cuda.is_available():
        return Table(title, [{"solver": "nmf-torch", "note": "not run: torch sees no GPU"}])
    from icofactor.estimator.estimator import CorticalFactorization

    rows = []
    for algo in ("hals", "bpp"):
        for point in torch_path(algo, use_gpu=True)(data, 0, threads, sizes.marks):
            rows.append({"solver": f"nmf-torch ({algo})", "iterations": point.iterations, "seconds": point.seconds,
                         "error / variance": full_error(data.Xs, point.W, point.C) / data.variance})  # fmt: skip
    for polish in (0, 20):
        model = CorticalFactorization(data.n_components, method="CD-PNNMF", mesh=data.sites, polish=polish)
        _, seconds = timed(partial(model.fit, data.Xs))
        rows.append({"solver": f"icofactor, polish {polish}", "iterations": model.n_iter_, "seconds": seconds,
                     "error / variance": model.error_ / data.variance})  # fmt: skip
    return Table(title, rows)
