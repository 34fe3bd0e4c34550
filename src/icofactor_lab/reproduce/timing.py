"""Experiment 1: the time of a million updates with twenty columns, of one at full resolution, and their ratio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from icofactor.streaming.checkpoint import Arrays

from icofactor.factorization._solve import Course
from icofactor.factorization.engines import choose_engine
from icofactor.factorization.methods import PAPER_METHODS, Method, method_named
from icofactor.factorization.schemes.base import Problem, frobenius
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import State, advance, begin
from icofactor.streaming.runners import n_threads
from icofactor_lab.common.outcome import Outcome, Plate, Table
from icofactor_lab.common.plotting import BLUE, GREEN, GREY, RED, YELLOW, methods_on_y, panels, plain_log
from icofactor_lab.common.timing import pinned, timed
from icofactor_lab.reproduce.datasets import Maps, full_resolution, illustrated
from icofactor_lab.reproduce.formula import Formula
from icofactor_lab.reproduce.settings import LITERAL, Context, Sizes

MILLION = 1_000_000
PAPER_RANGE = (2.4e3, 6.25e5)
MOST_BYTES = 8e9
"""Memory that the matrices of a literal program may take: four of n × n numbers."""

_PAPER = (
    "Figure 3 of the paper: (1) time of a million iterations with the twenty initial columns, n_d = 10, ten "
    "repetitions; (2) time of one iteration at the resolution of the mesh, 10,242 nodes, ten repetitions."
)


def run(context: Context) -> Outcome:
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
    """Seconds of `starts` × `updates` updates, scaled to a million where they are fewer."""
    engine = choose_engine(sizes.engine, p, method, sizes.n_components, sizes.starts * sizes.updates)
    B, C = draw_starts(p, method, sizes.n_components, seeds_of(seed), range(sizes.starts))
    state = begin(p, method.scheme, B, C)
    engine.iterate(p, method, state, Course(2))  # compiled and loaded
    scale = MILLION / (sizes.starts * sizes.updates)
    return [
        scale * timed(lambda: engine.iterate(p, method, state, Course(sizes.updates)))[1] for _ in range(sizes.repeats)
    ]


def _formula(p: Problem, method: Method, K: np.ndarray, sizes: Sizes, seed: int) -> list[float]:
    """Seconds of a million updates of one start in plain NumPy, scaled from `formula_updates`."""
    L = np.asarray(p.L)
    state = _warm(p, method, sizes, seed)
    seconds = []
    for _ in range(sizes.repeats):
        one = Formula.of(p, method, state, "as read", K, L.T @ L)

        def many(one: Formula = one) -> None:
            for _ in range(sizes.formula_updates):
                one.update()

        with np.errstate(all="ignore"):  # dictionary learning may leave the finite numbers
            seconds.append(timed(many)[1] * MILLION / sizes.formula_updates)
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
        timed(Formula.of(p, method, state, kind, K, M).update)[1] for _ in range(repeats)
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


def _warm(p: Problem, method: Method, sizes: Sizes, seed: int) -> State:
    """A run after its plain updates, when it extrapolates."""
    B, C = draw_starts(p, method, sizes.n_components, seeds_of(seed), range(1))
    state = begin(p, method.scheme, B, C)
    with np.errstate(all="ignore"):
        for _ in range(method.plain_updates + 1):
            state = advance(p, method, state)
    return state


def _section(found: dict[str, Arrays], n_sites: int, sizes: Sizes, dataset: str) -> Outcome:
    middle = {key: {m: float(np.median(found[m][key])) for m in found} for key in _KEYS}
    ratio = {
        key: {m: MILLION * middle[key][m] / middle["formula"][m] for m in found}
        for key in ("as_read", "ordered", "never")
    }
    compiled = {m: MILLION * middle["never"][m] / middle["kernel"][m] for m in found}
    rows = [
        {
            "method": m,
            **{label: middle[key][m] for key, label in _KEYS.items()},
            "speed-up, as the formula reads": ratio["as_read"][m],
            "speed-up, M formed, products ordered": ratio["ordered"][m],
            "speed-up, M never formed": ratio["never"][m],
            "speed-up, M never formed, compiled kernels": compiled[m],
            "part of the speed-up due to M": ratio["as_read"][m] / ratio["never"][m],
        }
        for m in found
    ]
    spread = [
        {"method": m, "what": label, "seconds": float(seconds)}
        for m in found
        for key, label in _KEYS.items()
        for seconds in found[m][key]
    ]
    about = (
        f"Twenty literal columns, n_d = {sizes.n_components}, {dataset}. Compiled kernels: {sizes.starts:,} starts × "
        f"{sizes.updates:,} updates{'' if sizes.starts * sizes.updates == MILLION else ', scaled to a million'}. Plain "
        f"NumPy: one start, the formulas as they read, scaled from {sizes.formula_updates:,} updates. Full "
        f"resolution: one update with a column for each of {n_sites:,} vertices, in plain NumPy. Speed-ups "
        "compare plain NumPy with plain NumPy, unless said."
    )
    note = (
        "Medians, in seconds. Only the projective schemes have M; for the others 'as the formula reads' and 'M never "
        "formed' are the same program."
    )
    return Outcome(
        "timing",
        "Computational time",
        [about],
        [
            Table("Time and speed-up", rows, note, "timing"),
            Table("Every repetition", spread, name="timing_repetitions"),
        ],
        plates=[
            Plate(
                "fig3_time",
                partial(_drawn, found, n_sites),
                "Left: seconds of a million updates with twenty columns. Middle: seconds of one update at full "
                "resolution. Right: their ratio, plain NumPy both; the band is what the paper reports. Whiskers: all "
                "repetitions.",
                _PAPER,
            )
        ],
        facts={"ratio": ratio, "compiled": compiled, "n_sites": n_sites},
    )


_KEYS = {
    "kernel": "10⁶ coarse updates, compiled kernels (s)",
    "formula": "10⁶ coarse updates, plain NumPy (s)",
    "as_read": "one full update, as the formula reads (s)",
    "ordered": "one full update, M formed, products ordered (s)",
    "never": "one full update, M never formed (s)",
}


def _drawn(found: dict[str, Arrays], n_sites: int) -> Any:
    """Times of a million coarse updates and of one fine update, and their ratio, a row per method."""
    figure, ((coarse, fine, ratio),) = panels(1, 3, (11.5, 4.4), (0.95, 0.1, 0.95, 0.3), (0.06, 0), sharey=True)
    rows = np.arange(len(found))
    kinds = [
        (coarse, "kernel", -0.17, BLUE, "compiled kernels, many starts"),
        (coarse, "formula", 0.17, GREY, "plain NumPy, one start"),
        (fine, "never", -0.24, BLUE, "M never formed"),
        (fine, "ordered", 0.0, GREEN, "M formed, products ordered"),
        (fine, "as_read", 0.24, RED, "as the formula reads"),
    ]
    for axes, key, shift, colour, label in kinds:
        values = [np.asarray(found[m][key]) for m in found]
        _bars(axes, rows + shift, values, colour, label, 0.3 if axes is coarse else 0.22)
    middle = lambda m, key: float(np.median(found[m][key]))
    for key, shift, colour, label in [(k, s, c, t) for _, k, s, c, t in kinds[2:]]:
        ratios = [np.array([MILLION * middle(m, key) / middle(m, "formula")]) for m in found]
        _bars(ratio, rows + shift, ratios, colour, label, 0.22)
    ratio.axvspan(*PAPER_RANGE, color=YELLOW, alpha=0.35, linewidth=0, zorder=0, label="the paper's range")
    titles = (
        "10⁶ updates, twenty columns",
        f"one update, {n_sites:,} vertices",
        "speed-up: fine over coarse update",
    )
    for axes, title, unit in zip((coarse, fine, ratio), titles, ("seconds", "seconds", "times"), strict=True):
        if axes is coarse:
            plain_log(axes, "x")
        else:
            axes.set_xscale("log")
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xlabel(unit, fontsize=8)
        axes.legend(fontsize=6.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    methods_on_y(coarse, list(found))
    return figure


def _bars(axes: Any, rows: np.ndarray, values: Sequence[np.ndarray], colour: str, label: str, height: float) -> None:
    """Medians with whiskers from the least to the most."""
    for i, (row, all_) in enumerate(zip(rows, values, strict=True)):
        if not np.isfinite(all_).any():
            continue
        middle = float(np.median(all_))
        axes.barh(row, middle, height, color=colour, label=label if i == 0 else None)
        axes.plot([all_.min(), all_.max()], [row, row], color="#111111", linewidth=0.8)
