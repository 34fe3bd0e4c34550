"""(c) Growth of time and peak memory in sites, subjects and components.

Each point is a process of its own, `python -m icofactor_lab.bench.growth`: it reads a point, makes its data, then fits
once per line it reads.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._solve import Course, iterate
from icofactor.factorization.methods import method_named
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import begin
from icofactor.sphere.sites import Sites
from icofactor.streaming.runners import n_threads, one_blas_thread
from icofactor_lab.bench.settings import Bench, Sizes
from icofactor_lab.common.data import simulate_maps
from icofactor_lab.common.outcome import Outcome, Plate, Row, Table, Target, at_most
from icofactor_lab.common.plotting import BLUE, GREEN, GREY, OURS, named_log, panels, plain_log
from icofactor_lab.common.timing import median, peak_bytes, reset_peak, timed

MiB = 2**20
WORKING_SPACE, FACES = 16 * MiB, 320
"""Per thread: blocks of X in float64, and what the C library keeps of freed ones; faces on which fits start."""


@dataclass(frozen=True)
class Place:
    """One size of the data."""

    level: int
    n_subjects: int
    n_components: int

    @property
    def n_sites(self) -> int:
        return 20 * 4**self.level

    def of(self, axis: str) -> int:
        return {"sites": self.n_sites, "subjects": self.n_subjects, "components": self.n_components}[axis]


def axes(sizes: Sizes) -> dict[str, list[Place]]:
    """The points along each axis, all others at the centre."""
    level, n_subjects, n_components = sizes.centre
    return {
        "sites": [Place(x, n_subjects, n_components) for x in sizes.site_levels],
        "subjects": [Place(level, x, n_components) for x in sizes.subject_counts],
        "components": [Place(level, n_subjects, x) for x in sizes.component_counts],
    }


class _Worker:
    """A process that holds the data of one point and fits when asked."""

    def __init__(self, place: Place, n_iter: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "icofactor_lab.bench.growth"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._ask({**asdict(place), "n_iter": n_iter})

    def _ask(self, what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # why it ended is raised below
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            _, said = self._process.communicate()
            raise RuntimeError(f"a process of benchmark (c) ended: {said.strip()[-500:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def fit(self) -> dict[str, Any]:
        return self._ask("fit")

    def close(self) -> None:
        self._process.communicate()


@contextlib.contextmanager
def _workers(places: list[Place], n_iter: int) -> Iterator[dict[Place, _Worker]]:
    with contextlib.ExitStack() as stack:
        found = {}
        for place in places:
            found[place] = _Worker(place, n_iter)
            stack.callback(found[place].close)
        yield found


def run(bench: Bench) -> Outcome:
    """One process per point, all alive, fits interleaved over them."""
    sizes, repeats = bench.sizes, bench.repeats
    outcome = Outcome("c", "Growth of time and memory")
    outcome.notes += [
        f"Default settings with the number of updates fixed ({sizes.growth_iterations} of each start, tol = 0), so "
        f"that the same work is compared; medians of {repeats}, interleaved over the points, a process each. X is "
        "float32.",
        "Peak memory is VmHWM, reset before X is made. Baseline: the process with all libraries, kernels and the mesh "
        "loaded and one tiny fit made. Allowed: baseline + X + 3 × (sites + subjects) × components × 8 bytes + the "
        "statistics (K, L, energies) of the final design + 5 numbers per site + 2 × drawn starts × (faces + subjects) "
        f"× components × 8 bytes + {WORKING_SPACE // MiB} MiB per thread.",
    ]
    along = axes(sizes)
    places = list(dict.fromkeys(place for points in along.values() for place in points))
    bench.tell(f"(c) {len(places)} points × {repeats} rounds")
    with _workers(places, sizes.growth_iterations) as workers:
        answers: dict[Place, list[dict[str, Any]]] = {place: [] for place in places}
        for _ in range(repeats):
            for place, worker in workers.items():
                answers[place].append(worker.fit())
    if not all(a["reset"] for found in answers.values() for a in found):
        outcome.notes.append("The peak could not be reset here: it includes what making the mesh and X took.")
    excess = []
    for axis, points in along.items():
        rows = [_row(axis, place, answers[place]) for place in points]
        outcome.tables.append(Table(f"In {axis}", rows, _exponents(axis, rows)))
        outcome.targets += _targets(axis, rows)
        excess += [row["peak over allowed"] for row in rows]
    outcome.targets.append(at_most("peak memory over what is allowed (the worst point)", max(excess), 1))
    outcome.plates = [Plate("growth", partial(_drawn, list(outcome.tables)))]
    rows = [row for method in ("parts", "LE-PPNMF") for row in _people(method, sizes.people_counts, repeats)]
    outcome.tables.append(Table("In people, on 320 faces, M = LᵀL formed once", rows, "processor seconds"))
    for method in ("parts", "LE-PPNMF"):
        spent = [float(row["starts and updates"]) for row in rows if row["method"] == method]
        what = f"starts and updates of {method}, {sizes.people_counts[-1]} people over {sizes.people_counts[0]}"
        outcome.targets.append(at_most(what, spent[-1] / spent[0], 1.2))
    return outcome


def _people(method: str, counts: tuple[int, ...], repeats: int) -> list[Row]:
    """Forming M, and starts and updates after that, with more people than faces; rounds interleaved over the counts."""
    scheme, faces = method_named(method).scheme, 320
    rng, K = np.random.default_rng(0), sp.csr_array(sp.eye_array(faces))
    problems: dict[int, Statistics] = {}
    spent: dict[int, tuple[list[float], list[float]]] = {n: ([], []) for n in counts}
    for n in counts:
        L = rng.random((n, 8)) @ rng.random((8, faces)) ** 4 + 0.3 * rng.random((n, faces))
        L = L - L.mean(axis=0) if method == "parts" else L
        index = np.column_stack([np.full(faces, 2), np.arange(faces)])
        size = float((L**2).sum())
        problems[n] = Statistics(K, L, size, (L**2).sum(axis=0), np.ones(faces), faces, L[:, :20].copy(), index)
    for _ in range(repeats):
        for n, stats in problems.items():
            with one_blas_thread():
                p = Problem.of(stats, scheme)
                asked = time.process_time()
                compact = p.compact()
                formed = time.process_time()
                _update(compact, method)
                spent[n][0].append(formed - asked)
                spent[n][1].append(time.process_time() - formed)
    return [
        {"method": method, "people": n, "forming M": median(spent[n][0]), "starts and updates": median(spent[n][1])}
        for n in counts
    ]


def _update(p: Problem, method: str) -> None:
    """Ten starts of 100 updates by the generic functions."""
    chosen = method_named(method)
    B, C = draw_starts(p, chosen, 8, seeds_of(0), range(10))
    iterate(p, chosen, begin(p, chosen.scheme, B, C), Course(100))


def _row(axis: str, place: Place, answers: list[dict[str, Any]]) -> Row:
    first = answers[0]
    factors = 3 * (place.n_sites + place.n_subjects) * place.n_components * 8
    starts = 2 * method_named("parts").scheme.n_starts * (FACES + place.n_subjects) * place.n_components * 8
    working = 5 * place.n_sites * 8 + starts + n_threads() * WORKING_SPACE
    allowed = first["baseline"] + first["X"] + factors + first["statistics"] + working
    peak = max(a["peak"] for a in answers)
    return {
        axis: place.of(axis),
        "sites × subjects × components": f"{place.n_sites} × {place.n_subjects} × {place.n_components}",
        "seconds": median([a["seconds"] for a in answers]),
        "peak (MiB)": peak / MiB,
        "baseline (MiB)": first["baseline"] / MiB,
        "X (MiB)": first["X"] / MiB,
        "allowed (MiB)": allowed / MiB,
        "peak over allowed": peak / allowed,
        "above baseline and X (MiB)": (peak - first["baseline"] - first["X"]) / MiB,
    }


def exponent(x: list[float], y: list[float]) -> float:
    """Slope of log y over log x: y grows as x to this power."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _exponents(axis: str, rows: list[Row]) -> str:
    x, y = [float(r[axis]) for r in rows], [float(r["seconds"]) for r in rows]
    return f"time grows as {axis} to the {exponent(x, y):.2f}; over the last two points {exponent(x[-2:], y[-2:]):.2f}"


def _targets(axis: str, rows: list[Row]) -> list[Target]:
    x, y = [float(r[axis]) for r in rows], [float(r["seconds"]) for r in rows]
    if axis == "components":
        return [Target("exponent of time in components", "", exponent(x, y), None)]
    steepest = max(exponent(x, y), exponent(x[-2:], y[-2:]))
    return [at_most(f"exponent of time in {axis} (all points, or the last two if steeper)", steepest, 1.1)]


def _drawn(tables: list[Table]) -> Any:
    """Time above, memory below; one column per axis of growth."""
    figure, axes = panels(2, len(tables), (3.4 * len(tables), 5.6))
    for column, table in enumerate(tables):
        axis, rows = table.title.removeprefix("In "), table.rows
        x = np.array([row[axis] for row in rows], dtype=float)
        take = lambda key, rows=rows: np.array([row[key] for row in rows])
        top, bottom = axes[0, column], axes[1, column]
        seconds = take("seconds")
        top.plot(x, seconds, "o-", color=OURS, ms=4)
        top.plot(x, seconds[-1] * x / x[-1], "--", color=GREY, lw=0.8)
        top.annotate("linear", (x[0], seconds[-1] * x[0] / x[-1]), fontsize=6, color="#777777", va="top")
        baseline = take("baseline (MiB)")
        for name, y, colour, style in (
            ("peak", take("peak (MiB)") - baseline, OURS, "o-"),
            ("allowed", take("allowed (MiB)") - baseline, BLUE, "--"),
            ("X", take("X (MiB)"), GREEN, ":"),
        ):
            bottom.plot(x, np.maximum(y, 0.01), style, color=colour, ms=4, lw=1.2, label=name)
        top.set_title(table.note.replace("; ", "\n"), fontsize=7, loc="left")
        top.set_ylabel("seconds", fontsize=8)
        bottom.set_ylabel("memory above the baseline, MiB", fontsize=8)
        bottom.set_xlabel(axis, fontsize=8)
        for ax in (top, bottom):
            named_log(ax, x)
            plain_log(ax, "y")
    axes[1, 0].legend(fontsize=7, frameon=False)
    return figure


# ------------------------------------------------------------------ the process of one point


def statistics_bytes(model: CorticalFactorization) -> int:
    """Memory of the statistics the fit ended with."""
    stats = model.refined_.stats
    K = stats.K
    return int(sum(x.nbytes for x in (K.data, K.indices, K.indptr, stats.L, stats.energy, stats.counts, stats.root_L)))


def main() -> None:
    """What is not the fit's is made before its memory is looked at: libraries, kernels, threads, the mesh."""
    warnings.simplefilter("ignore")
    point: dict[str, Any] = json.loads(sys.stdin.readline())
    settings = {"n_iter": point["n_iter"], "tol": 0.0}
    tiny = Sites.icosphere(3, on="faces")
    first = CorticalFactorization(2, mesh=tiny, **{**settings, "n_iter": 2, "engine": "cpu"})
    first.fit(simulate_maps(tiny.coordinates, 12, 2))
    sites = Sites.icosphere(point["level"], on="faces")
    reset = reset_peak()
    baseline = peak_bytes()
    X = simulate_maps(sites.coordinates, point["n_subjects"], point["n_components"])
    reset_peak()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        model = CorticalFactorization(point["n_components"], mesh=sites, **settings)
        _, seconds = timed(partial(model.fit, X))
        answer = {
            "seconds": seconds,
            "baseline": baseline,
            "peak": peak_bytes(),
            "X": X.nbytes,
            "statistics": statistics_bytes(model),
            "reset": reset,
        }
        del model  # before the next one is made
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
