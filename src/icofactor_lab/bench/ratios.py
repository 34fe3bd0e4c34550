"""Ratios that tell a slow-down: `icofactor bench --save FILE`, and `--against FILE` to compare with an earlier run.

Seconds differ between days; a ratio to the machine's matrix product, to scikit-learn or to reading the same bytes,
measured in the same round, hardly does. A round measures everything once. Two runs are compared by the median of all
quotients new / old (Hodges and Lehmann), with the interval of the Mann-Whitney test, which assumes no distribution; the
intervals of all ratios hold together at 95 %.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

import icofactor as ico
from icofactor.cohort.store import create_store
from icofactor.errors import ArgumentError, FileError, counted, literal
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refinement, refine
from icofactor.factorization._solve import Course
from icofactor.factorization._solve import iterate as generic
from icofactor.factorization.design import Design
from icofactor.factorization.engines import cpu
from icofactor.factorization.methods import method_named
from icofactor.factorization.statistics import Data, Statistics
from icofactor.io.atomic import check_target
from icofactor.io.guard import Unreadable, naming
from icofactor.io.json import read_json
from icofactor.io.tables import write_json
from icofactor.streaming.runners import n_threads, one_blas_thread
from icofactor_lab.bench.updates import gemm, prepared, statistics
from icofactor_lab.common.data import simulated
from icofactor_lab.common.outcome import Row, Table, markdown
from icofactor_lab.common.timing import interleaved, machine, pinned
from icofactor_lab.docs_tables.scale import simulated as stored_people
from icofactor_lab.docs_tables.scale import touch

FORMAT, VERSION = "icofactor bench ratios", 1
DGEMM, SKLEARN, READING = "dgemm", "scikit-learn", "reading"
LEVEL, MARGIN = 0.95, 1.05
"""Of all intervals together; slow-downs up to this factor are not named, as runs of the same code differ by as much."""
REPEATS, _MOST = 7, 1000
"""Rounds, and how many of them a file may have."""
_FIRST_FIT = (
    "import numpy, icofactor as i; X = numpy.random.default_rng(0).gamma(2, size=(30, 642));"
    "i.CorticalFactorization(3, method={!r}, mesh='fsaverage3', hemi='left').fit(X)"
)
Works = dict[str, tuple[str, Callable[[], Any]]]
"""What is measured → what it is compared with, and a call."""


@dataclass(frozen=True)
class Scale:
    """How large the works are; two files are compared only if these are equal."""

    gemm: int = 1500
    subjects: int = 100
    n_starts: int = 1000
    n_iter: int = 50
    level: int = 5
    sklearn_iterations: int = 30
    refinements: int = 100
    store: tuple[int, int] = (6, 400)
    mesh: str = "fsaverage4"
    fresh: bool = True


TINY = Scale(200, 12, 8, 5, 3, 2, 2, (3, 12), "fsaverage3", fresh=False)


def run_ratios(
    save: str | Path | None = None,
    against: str | Path | None = None,
    *,
    repeats: int = REPEATS,
    quick: bool = False,
    overwrite: bool = False,
    tell: Callable[[str], None] = print,
) -> list[str]:
    """Measure the ratios, write them to the file `save`, compare them with the file `against`; what got slower.

    Both files are looked at before anything is measured.
    """
    scale = TINY if quick else Scale()
    if repeats < 1:
        raise ArgumentError("repeats", repeats, "a whole number ≥ 1")
    if save is not None:
        check_target(Path(save), overwrite)
    before = None if against is None else read_ratios(Path(against))
    if before is not None:
        _check_comparable(before, scale, repeats, Path(str(against)))
    with pinned(n_threads()), tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that tiny fits do not converge
        found = _measured(scale, repeats, Path(folder), tell)
    if save is not None:
        write_json(save, found, overwrite=overwrite)
    if before is None:
        tell(markdown(Table("", [{"what": n, **_shown(one)} for n, one in found["ratios"].items()])))
        return []
    rows, slower = compare(before, found)
    for line in _changes(before["machine"], found["machine"]):
        print(line)  # also where progress is not shown: it may be why something is slower
    tell(markdown(Table("", rows)))
    return slower


def _measured(scale: Scale, repeats: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    bases, works = _works(scale, folder)
    calls = {**bases, **{name: work for name, (_, work) in works.items()}}
    tell(f"{len(works)} ratios, {counted(repeats, 'round')}")
    for work in calls.values():
        work()  # compiled, loaded, in the page cache
    seconds = interleaved(calls, repeats)
    ratios = {}
    for name, (to, _) in works.items():
        each = [mine / base for mine, base in zip(seconds[name], seconds[to], strict=True)]
        ratios[name] = {"to": to, "median": float(np.median(each)), "interval": interval(each), "each": each}
    return {
        "format": FORMAT,
        "version": VERSION,
        "machine": {**machine(n_threads()), "system": f"{platform.system()} {platform.machine()}"},
        "scale": asdict(scale),
        "seconds": {to: float(np.median(seconds[to])) for to in bases},
        "ratios": ratios,
    }


# ------------------------------------------------------------------ what is measured


def _works(scale: Scale, folder: Path) -> tuple[dict[str, Callable[[], Any]], Works]:
    """The three measures of the machine, and what is compared with them."""
    from sklearn.decomposition import non_negative_factorization

    data = simulated(scale.level, scale.subjects)
    X, store, thrice = data.Xs, folder / "store", lambda work: lambda: [work() for _ in range(3)]
    level, people = scale.store
    create_store(store, stored_people(people, level))
    stored, n_components = ico.cohort.open_store(store), data.n_components
    settings: dict[str, Any] = {"n_components": n_components, "tol": 0, "max_iter": scale.sklearn_iterations}
    nmf = partial(non_negative_factorization, X, init="nndsvda", solver="cd", random_state=0, **settings)
    bases: dict[str, Callable[[], Any]] = {
        DGEMM: thrice(gemm(np.float64, scale.gemm)),
        SKLEARN: nmf,
        READING: thrice(lambda: touch(store)),
    }

    def fit(method: str, maps: Any = X, mesh: Any = data.sites, **more: Any) -> Any:
        return ico.CorticalFactorization(n_components, method=method, mesh=mesh, random_state=0, **more).fit(maps)

    new, model = X[: len(X) // 2], fit("parts", stored, None, n_starts=2)
    held, size = fit("CD-PNNMF"), f"{X.shape[1]} × {len(X)}"
    works: Works = {f"updates of {name}": (DGEMM, work) for name, work in _updates(scale).items()}
    works |= {
        f"{scale.refinements} refinements": (DGEMM, _refining(data, scale.refinements)),
        f"fit of CD-PNNMF, {size}": (SKLEARN, partial(fit, "CD-PNNMF")),
        f"fit of parts, {size}": (SKLEARN, partial(fit, "parts")),
        "transform": (SKLEARN, lambda: [held.transform(new) for _ in range(10)]),
        "store, every checksum": (READING, lambda: [stored.read_sites(block) for block in stored.site_blocks()]),
        "store, fit of parts": (READING, lambda: fit("parts", stored, None, n_starts=2)),
        "store, transform": (READING, lambda: model.transform(stored)),
    }
    cohort = ico.simulate_cohort(40, 4, mesh=scale.mesh, random_state=0)
    number = count()
    few: dict[str, Any] = {"n_splits": 4, "n_starts": 2, "n_nulls": 5}
    works["selection"] = DGEMM, lambda: ico.choose_n_components(cohort, (2, 3, 4), **few)
    if scale.fresh:
        small = ico.CorticalFactorization(4, n_starts=2, random_state=0)
        works["fit with report and figures"] = DGEMM, lambda: ico.fit_cohort(cohort, small, folder / str(next(number)))
        for method in ("parts", "CD-PNNMF"):
            works[f"first fit of {method}, nothing compiled"] = DGEMM, partial(_fresh, method, folder, number)
    return bases, works


def _updates(scale: Scale) -> dict[str, Callable[[], Any]]:
    """Many starts of a few methods on 20 faces with a dense K, by the kernels where there are some."""
    stats, found = statistics(scale.subjects), dict[str, Callable[[], Any]]()
    for name, rules in (("PNNMF", "paper"), ("LE-PNNMF", "default"), ("CD-PNNMF", "default"), ("LE-PPNMF", "default")):
        method = method_named(name)
        p, state = prepared(stats, method.scheme.name, rules, scale.n_starts)
        if cpu.available() and cpu.can_run(p, method):
            course = Course(-(-scale.n_iter // 10) if method.scheme.sweeps else scale.n_iter)
            found[f"{name}, {rules} rules"] = partial(cpu.iterate, p, method, state, course)
    p, state = prepared(stats, "PNNMF", "paper", max(1, scale.n_starts // 20))
    found["PNNMF, generic functions"] = partial(generic, p, method_named("PNNMF"), state, Course(scale.n_iter))
    return found


def _refining(data: Any, steps: int) -> Callable[[], Any]:
    X, design = data.Xs.T, Design(data.sites)
    stats = Statistics.from_data(X, design)
    start = multistart(stats, "LE-PNNMF", data.n_components, n_starts=4, n_iter=50, random_state=0)
    source = Data(X, data.sites)

    def work() -> None:
        with one_blas_thread():
            refine(source, design, stats, start, Refinement(steps, 5, 10), engine="auto")

    return work


def _fresh(method: str, folder: Path, number: Any) -> None:
    """A small fit in a new process whose kernels were never compiled."""
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder / f"cache-{next(number)}")}
    subprocess.run([sys.executable, "-W", "ignore", "-c", _FIRST_FIT.format(method)], env=env, check=True)


# ------------------------------------------------------------------ intervals


def interval(each: Sequence[float]) -> list[float]:
    """Between which two of the values their true median lies, at 95 %; the extremes if they are fewer than six."""
    values = np.sort(each)
    k = max(0, int(binom.ppf((1 - LEVEL) / 2, len(values), 0.5)) - 1)
    return [float(values[k]), float(values[-1 - k])]


def quotient(new: Sequence[float], old: Sequence[float], level: float) -> tuple[float, float, float]:
    """Median of all quotients new / old, and its interval; 0 and infinity where there are too few values for one."""
    logs = np.sort(np.subtract.outer(np.log(new), np.log(old)).ravel())
    chances = mann_whitney(len(new), len(old))
    k = int(np.searchsorted(np.cumsum(chances), (1 - level) / 2, side="right"))  # P(U ≤ k − 1) ≤ (1 − level) / 2
    ends = (-np.inf, np.inf) if k == 0 else (logs[k - 1], logs[-k])
    return float(np.exp(np.median(logs))), float(np.exp(ends[0])), float(np.exp(ends[1]))


def mann_whitney(m: int, n: int) -> np.ndarray:
    """Chances of U = 0, 1, ..., m n if both samples are of one distribution: a Gaussian binomial coefficient."""
    counts = np.zeros(m * n + 1)
    counts[0] = 1.0
    for i in range(1, m + 1):
        for u in range(n + i, m * n + 1)[::-1]:  # times 1 - q^(n + i)
            counts[u] -= counts[u - n - i]
        for u in range(i, m * n + 1):  # divided by 1 - q^i
            counts[u] += counts[u - i]
    return np.asarray(counts / counts.sum())


# ------------------------------------------------------------------ comparing


def read_ratios(file: Path) -> dict[str, Any]:
    """What `--save` wrote."""
    with naming(file, "file of ratios", advice="Write it with `icofactor bench --save FILE`"):
        found = read_json(file)
        if not isinstance(found, dict) or (found.get("format"), found.get("version")) != (FORMAT, VERSION):
            raise Unreadable(f"is not a file of ratios of version {VERSION}")
        of = lambda record, name, kind: _checked(record.get(name), kind, name)
        machine, every, _ = (of(found, name, dict) for name in ("machine", "ratios", "scale"))
        _checked(machine.get("versions", {}), dict, "versions")
        if not every:
            raise Unreadable("is damaged: it has no ratios")
        for name, one in every.items():
            to, each = of(_checked(one, dict, name), "to", str), of(one, "each", list)
            number = lambda value: type(value) in (int, float) and 0 < value < 1e300
            if to not in (DGEMM, SKLEARN, READING) or not 0 < len(each) <= _MOST or not all(map(number, each)):
                raise Unreadable(f"is damaged: {literal(name)} is not a list of 1 to {_MOST} numbers above 0")
            one["median"] = float(np.median(each))
        return found


def _checked(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        what = "record" if kind is dict else "list" if kind is list else "text"
        raise Unreadable(f"is damaged: {literal(name)} is not a {what}")
    return value


def _check_comparable(before: Mapping[str, Any], scale: Scale, repeats: int, file: Path) -> None:
    if before["scale"] != _as_json(scale):
        raise FileError(file, "was measured with other sizes (--quick, or another version): save it again")
    rounds = min(len(one["each"]) for one in before["ratios"].values())
    level = _each_level(len(before["ratios"]))
    least = next(n for n in count(2) if mann_whitney(n, rounds)[0] <= (1 - level) / 2) if rounds > 2 else None
    if least is None or least > 50:
        raise FileError(file, f"has {counted(rounds, 'round')}, too few to compare: save it with more --repeats")
    if repeats < least:
        raise ArgumentError("repeats", repeats, f"at least {least}: fewer rounds cannot tell a slow-down")


def _as_json(scale: Scale) -> dict[str, Any]:
    return {**asdict(scale), "store": list(scale.store)}


def _each_level(n: int) -> float:
    return 1 - (1 - LEVEL) / max(1, n)


def compare(before: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[list[Row], list[str]]:
    """A row for each ratio, and the names of those that got slower: the whole interval is above `MARGIN`."""
    old, new = before["ratios"], now["ratios"]
    both = [name for name in new if name in old and old[name]["to"] == new[name]["to"]]
    rows, slower = list[Row](), list[str]()
    for name in both:
        by, low, high = quotient(new[name]["each"], old[name]["each"], _each_level(len(both)))
        verdict = "slower" if low > MARGIN else "faster" if high < 1 / MARGIN else ""
        if low > MARGIN:
            slower.append(f"{name}: {by:.2f} × ({low:.2f} to {high:.2f}) as slow beside {new[name]['to']}")
        change = {"change": f"{by:.2f} ×", "interval": f"{low:.2f} to {high:.2f}", "": verdict}
        rows.append({"what": name, "before": old[name]["median"], **_shown(new[name]), **change})
    why = lambda name: "over something else" if name in old and name in new else "in one of the files only"
    rows += [{"what": name, "": f"not compared: {why(name)}"} for name in sorted({*old, *new} - {*both})]
    return rows, slower


def _shown(one: Mapping[str, Any]) -> Row:
    return {"now": one["median"], "over": one["to"]}


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What else differs between the runs."""
    lines = []
    for name in ("processor", "threads", "blas"):
        if before.get(name) != now[name]:
            lines.append(f"Another machine or setting: {name} was {before.get(name)}, is {now[name]}.")
    versions = {n: (before.get("versions", {}).get(n), v) for n, v in now["versions"].items()}
    moved = ", ".join(f"{name} {old} to {new}" for name, (old, new) in versions.items() if old != new)
    return [*lines, *([f"Versions: {moved}."] if moved else [])]
