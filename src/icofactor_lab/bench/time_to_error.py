"""(b) Time to error: the full-resolution error of every solver against time, on the same data in the same run."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from icofactor_lab.bench.settings import Bench, Sizes
from icofactor_lab.bench.solvers import REFERENCE, Solver, solvers
from icofactor_lab.common.data import Dataset, real_thickness, simulated
from icofactor_lab.common.objective import full_error, time_to
from icofactor_lab.common.outcome import Outcome, Plate, Row, Table, Target, at_most, not_run
from icofactor_lab.common.plotting import BLACK, BLUE, GREEN, GREY, ORANGE, OURS, PINK, SKY, panels

THRESHOLDS = (1.05, 1.01, 1.005)
"""Times the best error any solver reached."""
NEAR_REFERENCE = 1.01
REFERENCE_GOALS = {20480: 1 / 25, 327680: 1 / 100}
"""By number of sites: the part of the reference's time in which its error, within 1 %, is to be reached."""
_LEAST_ABOVE = 0.01
"""Percent above the best error at which the best itself is drawn."""


@dataclass
class Record:
    """All runs of one solver on one dataset; a run is a list of (iterations, seconds, error)."""

    solver: Solver
    runs: list[list[tuple[int, float, float]]] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    stopped: bool = False
    failed: str | None = None

    @property
    def best(self) -> float:
        return min((error for run in self.runs for _, _, error in run), default=np.inf)

    @property
    def rate(self) -> float:
        """Iterations per second between the first point and the last, the start not counted; median over runs."""
        rates = [(r[-1][0] - r[0][0]) / (r[-1][1] - r[0][1]) for r in self.runs if len(r) > 1 and r[-1][1] > r[0][1]]
        return float(np.median(rates)) if rates else np.nan

    def time_to(self, error: float) -> float:
        """Median over runs of the time to `error`; infinite when fewer than half of them reached it."""
        times = [time_to([(s, e) for _, s, e in run], error) for run in self.runs]
        return float(np.median(times)) if times else np.inf

    def median_path(self) -> list[tuple[int, float, float]]:
        """Medians of seconds and errors over the runs, point by point."""
        length = min((len(run) for run in self.runs), default=0)
        points = (np.median([run[i] for run in self.runs], axis=0) for i in range(length))
        return [(int(i), float(s), float(e)) for i, s, e in points]


def run(bench: Bench) -> Outcome:
    """All datasets, one after the other, so that only one X is in memory."""
    sizes, outcome = bench.sizes, Outcome("b", "Time to error, full resolution")
    outcome.notes.append(
        f"A run is stopped at {bench.budget:g} s, and repeated (at most {bench.repeats} times, one seed each, "
        "interleaved over solvers) while all runs of the solver on these data take less than twice that. Times are "
        "medians over runs; loading the data, building the mesh and computing errors are not on any clock."
    )
    which = solvers(sizes.fit_updates)
    if not sizes.is_quick:
        bench.tell("(b) loading every library")
        # imports and compilation, on data too small to matter; those that fail here fail below, where it is recorded
        once = replace(bench, repeats=1, budget=np.inf, tell=lambda line: None)
        measure(simulated(2, 24), solvers(20), (1, 10), once)
    for data in _datasets(sizes):
        bench.tell(f"(b) {data.size}: {data.name}")
        records = measure(data, which, sizes.marks, bench)
        for projective, problem in ((False, "NMF"), (True, "projective NMF")):
            chosen = [r for r in records if r.solver.projective == projective]
            outcome.tables.append(table_of(data, chosen, problem))
            if not projective:
                outcome.targets += _targets(data, chosen, sizes)
    outcome.plates = [Plate("time_to_error", partial(_drawn, outcome.tables))]
    return outcome


def _datasets(sizes: Sizes) -> Iterator[Dataset]:
    for i, (level, n_subjects) in enumerate(sizes.faces):
        real = real_thickness(n_subjects) if sizes.real and i == 0 else None
        yield real if real is not None else simulated(level, n_subjects)


def measure(data: Dataset, which: Sequence[Solver], marks: Sequence[int], bench: Bench) -> list[Record]:
    """Every solver on one dataset, rounds interleaved."""
    records = [Record(solver, failed=solver.why_not(data)) for solver in which]
    for round_ in range(bench.repeats):
        for record in records:
            spent = sum(record.spent)
            if record.failed or (record.spent and spent + max(record.spent) > 2 * bench.budget):
                continue
            _one_run(record, data, marks, round_, bench)
            if not record.failed:
                bench.tell(f"    round {round_ + 1}: {record.solver.name}: {record.runs[-1][-1][1]:.3g} s")
    return records


def _one_run(record: Record, data: Dataset, marks: Sequence[int], seed: int, bench: Bench) -> None:
    """One run, a point at a time, until its marks or its time are up."""
    gc.collect()
    points: list[tuple[int, float, float]] = []
    used = 0.0  # on the solver's clock, over all restarts
    path = record.solver.path(data, seed, bench.threads, marks)
    begin = time.perf_counter()
    try:
        for point in path:
            elapsed = time.perf_counter() - begin
            used += elapsed
            points.append((point.iterations, point.seconds, full_error(data.Xs, point.W, point.C)))
            if used + 1.5 * elapsed > bench.budget and point.iterations < marks[-1] and record.solver.family != "ours":
                record.stopped = True  # the next stretch is longer than the last
                break
            begin = time.perf_counter()
    except Exception as problem:  # a peer that fails is a result, not the end of the benchmark
        if record.solver.family == "ours":
            raise
        record.failed = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
        return
    finally:
        path.close()  # type: ignore[attr-defined]
    record.runs.append(points)
    record.spent.append(used)


def table_of(data: Dataset, records: list[Record], problem: str) -> Table:
    """One row per solver; errors over the best that any of these reached."""
    best = min((r.best for r in records), default=np.inf)
    rows = [_row(r, best) for r in records]
    note = (
        f"{data.name}; best error {best:.6g} = {best / data.sq_norm:.6g} of ‖X‖² = {best / data.variance:.4f} of the "
        f"between-subject variance; the SVD of rank {data.n_components}, which nothing undercuts, has "
        f"{data.floor / data.variance:.4f}. Building the mesh took {data.sites_seconds:.2f} s."
        if np.isfinite(best)
        else data.name
    )
    return Table(f"{problem}, {data.size}", rows, note)


def _row(record: Record, best: float) -> Row:
    name = record.solver.name
    if record.failed or not record.runs:
        return {"solver": name, "note": f"not run: {record.failed}", "path": []}
    path = record.median_path()
    note = f"stopped at the time limit; {record.rate:.3g} iterations/s" if record.stopped else ""
    return {
        "solver": name,
        "family": record.solver.family,
        "runs": len(record.runs),
        "iterations": path[-1][0],
        "seconds": path[-1][1],
        "error / best": path[-1][2] / best,
        **{f"s to {t:g}×": record.time_to(t * best) for t in THRESHOLDS},
        "iterations/s": record.rate,
        "note": note,
        "path": [(i, s, e, e / best) for i, s, e in path],
    }


def _targets(data: Dataset, records: list[Record], sizes: Sizes) -> list[Target]:
    """First to the best error, and the part of scikit-learn's time."""
    best = min(r.best for r in records)
    found = []
    for threshold in THRESHOLDS:
        ours = min((r.time_to(threshold * best), r.solver.name) for r in records if r.solver.family == "ours")
        peer = min((r.time_to(threshold * best), r.solver.name) for r in records if r.solver.family != "ours")
        what = f"{data.size}: our time to {threshold:g} × the best error over the first peer's"
        ratio = ours[0] / peer[0] if np.isfinite(ours[0]) else np.inf
        found.append(at_most(what, ratio, 1, note=f"{_named(ours, 'ours')}; {_named(peer, 'peers')}"))
    return [*found, _against_reference(data, records, best, sizes)]


def _named(timed: tuple[float, str], who: str) -> str:
    seconds, name = timed
    return f"{name}: {seconds:.3g} s" if np.isfinite(seconds) else f"{who} did not reach it"


def _against_reference(data: Dataset, records: list[Record], best: float, sizes: Sizes) -> Target:
    """Our time to the reference's error within 1 %, over the reference's time."""
    what = (
        f"{data.size}: our time to within 1 % of {REFERENCE}'s error over its {sizes.reference_iterations} iterations"
    )
    goal = REFERENCE_GOALS.get(data.Xs.shape[1])
    reference = next((r for r in records if r.solver.name == REFERENCE and r.runs), None)
    if reference is None:
        return not_run(what, "" if goal is None else f"≤ {goal:g}", f"{REFERENCE} was not run")
    iterations, seconds, error = reference.median_path()[-1]
    note = ""
    if iterations < sizes.reference_iterations:
        seconds += (sizes.reference_iterations - iterations) / reference.rate
        error = min(best, error)
        note = (
            f"its time is extrapolated from {iterations} iterations at {reference.rate:.3g} a second; its error then "
            "being unknown, the best that any solver reached stands for it. "
        )
    ours = min((r.time_to(NEAR_REFERENCE * error), r.solver.name) for r in records if r.solver.family == "ours")
    note += f"{REFERENCE}: {seconds:.3g} s; {_named(ours, 'ours')}"
    if goal is None:
        return Target(what, "", ours[0] / seconds, None, note)
    return at_most(what, ours[0] / seconds, goal, note=note)


def _drawn(tables: list[Table]) -> Any:
    """Error above the best against time, a panel per dataset that has peers; ours are dots, peers are lines."""
    tables = [t for t in tables if any(r.get("path") and r["family"] != "ours" for r in t.rows)]
    figure, axes = panels(max(1, len(tables)), 1, (9.0, 4.6 * max(1, len(tables))))
    for ax, table in zip(axes.flat, tables, strict=False):
        peers = [row for row in table.rows if row.get("path") and row["family"] != "ours"]
        labels = []
        for i, row in enumerate(peers):
            seconds, above = _curve(row)
            colour = (BLACK, SKY, GREEN, BLUE, PINK, GREY, ORANGE)[i % 7]
            ax.plot(seconds, above, color=colour, marker="osD^vP*X"[i % 8], ms=3, lw=1.2)
            labels.append((seconds[-1], above[-1], row["solver"], colour))
        for row in table.rows:
            if row.get("path") and row["family"] == "ours":
                seconds, above = _curve(row)
                ax.plot(seconds, above, "o", color=OURS, ms=5, zorder=3)
                labels.append((seconds[-1], above[-1], row["solver"].removeprefix("icofactor, "), OURS))
        for share, text in ((5, "1.05 × best"), (1, "1.01 ×"), (0.5, "1.005 ×")):
            ax.axhline(share, color="#BBBBBB", lw=0.7, zorder=0)
            ax.annotate(text, (0, share), xycoords=("axes fraction", "data"), fontsize=6, color="#777777", va="bottom")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(0.7 * _LEAST_ABOVE, 300)  # what lies above is the first instants of the peers
        _spread(ax, labels)
        ax.set_title(f"{table.title}  (orange dots: icofactor)", fontsize=9, loc="left")
        ax.set_xlabel("seconds", fontsize=8)
        ax.set_ylabel("error above the best, %", fontsize=8)
    return figure


def _curve(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and error above the best in percent, drawn at least at _LEAST_ABOVE so that the best itself shows."""
    path = np.array([(seconds, ratio) for _, seconds, _, ratio in row["path"]])
    return path[:, 0], np.maximum(100 * (path[:, 1] - 1), _LEAST_ABOVE)


def _spread(ax: Any, labels: list[tuple[float, float, str, str]]) -> None:
    """Names beside their last points, in a column at the right, moved apart where they would touch."""
    low, high = np.log10(ax.get_ylim())
    order = sorted(labels, key=lambda label: label[1])
    places = np.clip([(np.log10(y) - low) / (high - low) for _, y, _, _ in order], 0.0, 1.0)
    step = 0.042
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + step)
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], 1.0 - step * (len(places) - 1 - i))
    for (x, y, text, colour), place in zip(order, places, strict=True):
        line = {"arrowstyle": "-", "color": colour, "lw": 0.4, "alpha": 0.6, "shrinkA": 0, "shrinkB": 2}
        ax.annotate(
            text, (x, min(y, 10**high)), xytext=(1.02, place), textcoords="axes fraction", fontsize=6.5, color=colour,
            va="center", arrowprops=line, annotation_clip=False,
        )  # fmt: skip
