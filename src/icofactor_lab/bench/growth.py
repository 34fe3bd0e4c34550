"""(c) Growth of time and peak memory in sites, subjects and components."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor_lab.bench.outcome import Outcome, Row, Table, Target, at_most
from icofactor_lab.bench.sizes import Sizes
from icofactor_lab.bench.timing import median

MiB = 2**20
Tell = Callable[[str], None]


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
    """A process that holds the data of one point and fits when told to."""

    def __init__(self, place: Place, n_iter: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "icofactor_lab.bench.growth_worker"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._ask({"level": place.level, "n_subjects": place.n_subjects, "n_components": place.n_components,
                   "n_iter": n_iter})  # fmt: skip

    def _ask(self, what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # its last words are told below
            self._process.stdin.write(json.dumps(what) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            _, words = self._process.communicate()
            raise RuntimeError(f"a process of benchmark (c) ended: {words.strip()[-500:]}")
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


def run(sizes: Sizes, repeats: int, threads: int, budget: float, tell: Tell) -> Outcome:
    """One process per point, all alive, fits interleaved over them."""
    outcome = Outcome("c", "Growth of time and memory")
    outcome.notes += [
        f"Default settings with the number of updates fixed ({sizes.growth_iterations} of each start, tol = 0), so "
        f"that the same work is compared; medians of {repeats}, interleaved over the points, a process each. X is "
        "float32.",
        "Peak memory is VmHWM, reset before X is made. Baseline: the process with all libraries, kernels and the mesh "
        "loaded and one tiny fit made. Allowed: baseline + X + 3 × (sites + subjects) × components × 8 bytes + the "
        "statistics (K, L, energies) of the final design.",
    ]
    along = axes(sizes)
    places = list(dict.fromkeys(place for points in along.values() for place in points))
    tell(f"(c) {len(places)} points × {repeats} rounds")
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
    return outcome


def _row(axis: str, place: Place, answers: list[dict[str, Any]]) -> Row:
    first = answers[0]
    factors = 3 * (place.n_sites + place.n_subjects) * place.n_components * 8
    allowed = first["baseline"] + first["X"] + factors + first["statistics"]
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
