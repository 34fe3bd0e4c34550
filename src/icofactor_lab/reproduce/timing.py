"""Experiment 1: the time of a million updates with twenty columns, of one at full resolution, and their ratio."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.factorization.engines import choose_engine
from icofactor.factorization.methods import PAPER_METHODS, Method, method_named
from icofactor.factorization.schemes.base import Problem, frobenius
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import State, advance, begin
from icofactor.streaming.checkpoint import Arrays
from icofactor.streaming.threads import n_threads
from icofactor_lab.bench.timing import pinned
from icofactor_lab.reproduce import plots
from icofactor_lab.reproduce.datasets import Maps, full_resolution, illustrated
from icofactor_lab.reproduce.formula import Formula
from icofactor_lab.reproduce.found import Context, Plate, Section, Table
from icofactor_lab.reproduce.settings import LITERAL, Sizes

MILLION = 1_000_000
PAPER_RANGE = (2.4e3, 6.25e5)
MOST_BYTES = 8e9
"""Memory that the matrices of a literal program may take: four of n × n numbers."""

_PAPER = (
    "Figure 3 of the paper: (1) time of a million iterations with the twenty initial columns, n_d = 10, ten "
    "repetitions; (2) time of one iteration at the resolution of the mesh, 10,242 nodes, ten repetitions."
)


def run(context: Context) -> Section:
    """Measure all eleven methods."""
    dataset, sizes = illustrated(context.datasets), context.sizes
    found: dict[str, Arrays] = {}
    for i, name in enumerate(PAPER_METHODS):
        measure = partial(_measure, name, dataset.load, lambda: full_resolution(dataset, sizes), sizes, context.seed)
        found[name] = context.piece(f"timing.{name}", measure)
        context.show((i + 1) / len(PAPER_METHODS))
    n_sites = int(next(iter(found.values()))["n_sites"])
    return _section(found, n_sites, sizes, dataset.name)


def _measure(name: str, coarse: Callable[[], Maps], full: Callable[[], np.ndarray], sizes: Sizes, seed: int) -> Arrays:
    method, maps = method_named(name), coarse()
    stats = maps.source.statistics(LITERAL.design(maps.sites))
    p = Problem.of(stats, method.scheme, "paper")
    with pinned(n_threads()):
        made: dict[str, Any] = {
            "kernel": _million(p, method, sizes, seed),
            "formula": _formula(p, method, stats.K.toarray(), sizes, seed),
        }
        X = full()
        made |= _full(X, method, sizes, seed)
    made["n_sites"] = np.array(len(X))
    return {key: np.asarray(value) for key, value in made.items()}


def _million(p: Problem, method: Method, sizes: Sizes, seed: int) -> list[float]:
    """Seconds of `starts` × `updates` updates, reckoned for a million where they are fewer."""
    engine = choose_engine(sizes.engine, p, method, sizes.n_components, sizes.starts * sizes.updates)
    B, C = draw_starts(p, method, sizes.n_components, seeds_of(seed), range(sizes.starts))
    state = begin(p, method.scheme, B, C)
    engine.iterate(p, method, state, 2)  # compiled and loaded
    scale = MILLION / (sizes.starts * sizes.updates)
    return [scale * _seconds(lambda: engine.iterate(p, method, state, sizes.updates)) for _ in range(sizes.repeats)]


def _formula(p: Problem, method: Method, K: np.ndarray, sizes: Sizes, seed: int) -> list[float]:
    """Seconds of a million updates of one start in plain NumPy, reckoned from `formula_updates`."""
    L = np.asarray(p.L)
    state = _warm(p, method, sizes, seed)
    seconds = []
    for _ in range(sizes.repeats):
        one = Formula.of(p, method, state, "as read", K, L.T @ L)

        def many(one: Formula = one) -> None:
            for _ in range(sizes.formula_updates):
                one.update()

        with np.errstate(all="ignore"):  # dictionary learning may leave the finite numbers
            seconds.append(_seconds(many) * MILLION / sizes.formula_updates)
    return seconds


def _full(X: np.ndarray, method: Method, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Seconds of one update with a column for every vertex: as the formula reads, ordered, and without M."""
    n = len(X)
    L, ones = np.ascontiguousarray(X.T), np.ones(n)
    L_norm = frobenius(L)
    p = Problem(
        L, ones, ones, ones[:, None], method.scheme.paper_penalty(L_norm), float((X**2).sum()), L_norm, literal=True
    )
    state, K = _warm(p, method, sizes, seed), sp.csr_array(sp.eye_array(n))
    time_of = lambda kind, M, repeats: [
        _seconds(Formula.of(p, method, state, kind, K, M).update) for _ in range(repeats)
    ]
    with np.errstate(all="ignore"):
        never = time_of("without M", None, sizes.repeats + 1)[1:]
        if not method.scheme.projective:  # there is no M, and left to right is what `without M` does
            return {"as_read": never, "ordered": never, "never": never}
        if 4 * 8 * n**2 > MOST_BYTES:
            return {"as_read": [np.nan], "ordered": [np.nan], "never": never}
        M = X @ L
        ordered = time_of("ordered", M, sizes.repeats + 1)[1:]
        return {"as_read": time_of("as read", M, sizes.repeats_read), "ordered": ordered, "never": never}


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _warm(p: Problem, method: Method, sizes: Sizes, seed: int) -> State:
    """A run after its plain updates, when it extrapolates."""
    B, C = draw_starts(p, method, sizes.n_components, seeds_of(seed), range(1))
    state = begin(p, method.scheme, B, C)
    with np.errstate(all="ignore"):
        for _ in range(method.plain_updates + 1):
            state = advance(p, method, state)
    return state


def _section(found: dict[str, Arrays], n_sites: int, sizes: Sizes, dataset: str) -> Section:
    middle = {key: {m: float(np.median(found[m][key])) for m in found} for key in _KEYS}
    ratio = {
        key: {m: MILLION * middle[key][m] / middle["formula"][m] for m in found}
        for key in ("as_read", "ordered", "never")
    }
    compiled = {m: MILLION * middle["never"][m] / middle["kernel"][m] for m in found}
    columns: dict[str, list[Any]] = {"method": list(found)}
    for key, label in _KEYS.items():
        columns[label] = list(middle[key].values())
    columns["speed-up, as the formula reads"] = list(ratio["as_read"].values())
    columns["speed-up, M formed, products ordered"] = list(ratio["ordered"].values())
    columns["speed-up, M never formed"] = list(ratio["never"].values())
    columns["speed-up, M never formed, compiled kernels"] = list(compiled.values())
    columns["part of the speed-up due to M"] = [ratio["as_read"][m] / ratio["never"][m] for m in found]
    spread: dict[str, list[Any]] = {
        "method": [m for m in found for key in _KEYS for _ in found[m][key]],
        "what": [_KEYS[key] for m in found for key in _KEYS for _ in found[m][key]],
        "seconds": [float(s) for m in found for key in _KEYS for s in found[m][key]],
    }
    reckoned = sizes.starts * sizes.updates
    about = (
        f"Twenty literal columns, n_d = {sizes.n_components}, {dataset}. Compiled kernels: {sizes.starts:,} starts × "
        f"{sizes.updates:,} updates{'' if reckoned == MILLION else ', reckoned for a million'}. Plain NumPy: one "
        f"start, the formulas as they read, reckoned from {sizes.formula_updates:,} updates. Full resolution: one "
        f"update with a column for each of {n_sites:,} vertices, in plain NumPy. Speed-ups compare plain NumPy with "
        "plain NumPy, unless said."
    )
    note = (
        "Medians, in seconds. Only the projective schemes have M; for the others 'as the formula reads' and 'M never "
        "formed' are the same program."
    )
    section = Section("timing", "Computational time", about)
    section.tables = [
        Table("timing", "Time and speed-up", columns, note),
        Table("timing_repetitions", "Every repetition", spread),
    ]
    section.plates = [
        Plate("fig3_time", lambda: plots.times(found, n_sites), _PAPER,
              "Left: seconds of a million updates with twenty columns. Middle: seconds of one update at full "
              "resolution. Right: their ratio, plain NumPy both; the band is what the paper reports. Whiskers: all "
              "repetitions."),
    ]  # fmt: skip
    section.facts = {"ratio": ratio, "compiled": compiled, "n_sites": n_sites}
    return section


_KEYS = {
    "kernel": "10⁶ coarse updates, compiled kernels (s)",
    "formula": "10⁶ coarse updates, plain NumPy (s)",
    "as_read": "one full update, as the formula reads (s)",
    "ordered": "one full update, M formed, products ordered (s)",
    "never": "one full update, M never formed (s)",
}
