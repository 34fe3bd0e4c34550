"""(a) Multistart: updates per second of every method, and the fraction of the machine's own matrix product.

`python -m icofactor_lab.bench.updates` prints the seconds to load the kernels, of their first call and of a second one;
the experiment runs it in fresh processes.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from icofactor.factorization import _solve as solver
from icofactor.factorization._solve import Course
from icofactor.factorization.design import Design
from icofactor.factorization.engines import cpu
from icofactor.factorization.methods import METHODS, PAPER_METHODS, method_named
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import State, begin
from icofactor_lab.bench.settings import Bench, Sizes
from icofactor_lab.common.data import simulated
from icofactor_lab.common.outcome import Outcome, Plate, Row, Table, Target, at_least, at_most, not_run
from icofactor_lab.common.plotting import BLUE, ORANGE, RED, SKY, methods_on_y, panels
from icofactor_lab.common.timing import interleaved, median

N_COMPONENTS = 10
MILLION = 1_000_000
SINGLE, DOUBLE = "float32", "float64"
_TYPES: dict[str, type[np.floating]] = {DOUBLE: np.float64, SINGLE: np.float32}
BASE = ("PNNMF", "paper", DOUBLE)


@dataclass(frozen=True)
class Case:
    """One row to measure."""

    label: str
    method: str
    rules: str
    dtype: str
    engine: str
    n_starts: int
    diagonal: bool = False

    @property
    def key(self) -> str:
        return f"{self.label}|{self.rules}|{self.dtype}|{self.engine}"


def operations_of_update(
    method: str, rules: str, n_k: int, n_d: int, n_s: int, diagonal: bool = False
) -> dict[str, int]:
    """Operations of one update by term; their sum is the count that rates are computed from.

    A product of m × k by k × n counts 2mkn. CCᵀ and G = BᵀKB are symmetric and only one triangle is computed, so they
    count n_d(n_d + 1) per row instead of 2n_d². K B is made once, for G of the new B and for its next update.
    Elementwise work counts only where it is the update itself (four operations an element of the quotient, five of
    eq. 8); momentum, logarithms, balance and restarts are the price of the method and are not counted as work done, so
    that a method's rate never rises by doing more than its update.

    Parameters
    ----------
    method, rules : as in `solve`
    n_k, n_d, n_s : columns of the design, components, subjects
    diagonal : whether K is diagonal, when K B costs n_k n_d
    """
    scheme = method_named(method).scheme
    times_K = n_k * n_d if diagonal else 2 * n_k * n_k * n_d
    terms = {
        "C L": 2 * n_s * n_k * n_d,
        "BᵀLᵀ": 2 * n_s * n_k * n_d,
        "CCᵀ": n_s * n_d * (n_d + 1),
        "K B": times_K,
        "G = BᵀKB": n_k * n_d * (n_d + 1),
        "(CCᵀ)(KB)ᵀ": 2 * n_k * n_d * n_d,
        "error (eq. 1)": 2 * n_k * n_d + 2 * n_d * n_d,
    }
    if scheme.projective:  # no update of C, which is BᵀLᵀ itself
        return terms | {"(BᵀKB)(MB)ᵀ": 2 * n_k * n_d * n_d, "eq. 8": 5 * n_k * n_d}
    terms["G C"] = 2 * n_s * n_d * n_d
    if scheme.sweeps:
        # each of the n_d steps of a sweep spreads one row's change over the residual: a rank-one update
        sweep_B = 2 * n_k * n_d * n_d + times_K
        return terms | {"sweeps over B": scheme.sweeps * sweep_B, "sweeps over C": scheme.sweeps * 2 * n_s * n_d * n_d}
    terms["quotient"] = 4 * (n_k + n_s) * n_d
    if scheme.signed_maps and rules == "default":
        terms["eigenvalue bounds"] = 2 * 3 * 2 * n_d**3  # three squarings each for CCᵀ and G
    return terms


def gemm(dtype: type[np.floating], size: int) -> Callable[[], Any]:
    """A square matrix product of the machine's own BLAS: 2 size³ operations a call."""
    rng = np.random.default_rng(0)
    A, B = (rng.random((size, size)).astype(dtype) for _ in range(2))
    out = np.empty_like(A)
    np.dot(A, B, out)
    return lambda: np.dot(A, B, out)


def statistics(n_subjects: int, columns: str = "smooth", level: int = 4) -> Statistics:
    """Statistics of simulated maps on 20 columns; "smooth" ones overlap, so that K is dense."""
    data = simulated(level, n_subjects)
    return Statistics.from_data(data.Xs.T, Design(data.sites, columns, 0))


def run(bench: Bench) -> Outcome:
    """Every method × rules × precision, the comparison rows, and dgemm and sgemm, interleaved."""
    sizes, repeats = bench.sizes, bench.repeats
    outcome = Outcome("a", "Multistart: many small problems")
    n_updates = sizes.n_starts * sizes.n_iter
    outcome.notes += [
        f"20 columns with a dense K, {N_COMPONENTS} components, {sizes.subjects} subjects. Measured: {sizes.n_starts} "
        f"starts × {sizes.n_iter} updates; the seconds are scaled to 10⁶ updates (× {MILLION / n_updates:g}). Medians "
        f"of {repeats}, {bench.threads} threads.",
        "Operations are counted term by term as the kernels make them (icofactor_lab.bench.updates); the fraction "
        f"is of the matrix product of side {sizes.gemm} in the same precision, on all threads, in the same run.",
    ]
    cases = _cases(sizes)
    works: dict[str, Callable[[], Any]] = {name: gemm(kind, sizes.gemm) for name, kind in _TYPES.items()}
    dense, diagonal = statistics(sizes.subjects), statistics(sizes.subjects, "partition")
    starts = functools.cache(lambda scheme, rules, n, k: prepared(diagonal if k else dense, scheme, rules, n))
    for case in cases:
        works[case.key] = _work(case, starts, sizes.n_iter)
        works[case.key]()  # compiled, loaded, memory touched
    bench.tell(f"(a) {len(cases)} rows × {repeats} rounds")
    seconds = interleaved(works, repeats)
    rates = {name: 2 * sizes.gemm**3 / median(seconds[name]) for name in _TYPES}
    rows = {case.key: _row(case, median(seconds[case.key]), rates, sizes, diagonal if case.diagonal else dense)
            for case in cases}  # fmt: skip
    note = ", ".join(f"{n} matrix product: {r / 1e9:.1f} GFLOP/s" for n, r in rates.items())
    outcome.tables.append(Table("Updates per second", list(rows.values()), note))
    outcome.plates = [Plate("multistart", functools.partial(_drawn, list(rows.values())))]
    outcome.tables.append(_terms_table(sizes))
    outcome.targets = _targets(list(rows.values()))
    bench.tell("(a) first call of the kernels")
    table, target = _first_calls(sizes)
    outcome.tables.append(table)
    outcome.targets.append(target)
    return outcome


def _cases(sizes: Sizes) -> list[Case]:
    stats, cases = statistics(4, level=2), []
    for name in METHODS:
        for rules in ("paper", "default"):
            if rules == "paper" and name not in PAPER_METHODS:
                continue
            compiled = cpu.available() and cpu.can_run(
                Problem.of(stats, method_named(name).scheme, rules), method_named(name)
            )
            for dtype in _TYPES if compiled else [DOUBLE]:
                engine = "cpu" if compiled else "numpy"
                cases.append(Case(name, name, rules, dtype, engine, sizes.n_starts if compiled else sizes.loop_starts))
    if cpu.available():
        cases.append(Case("PNNMF, diagonal K", "PNNMF", "paper", DOUBLE, "cpu", sizes.n_starts, diagonal=True))
    cases.append(Case("PNNMF, generic functions", "PNNMF", "paper", DOUBLE, "numpy", sizes.loop_starts))
    cases.append(Case("PNNMF, plain NumPy loop", "PNNMF", "paper", DOUBLE, "loop", max(1, sizes.loop_starts // 5)))
    return cases


def prepared(stats: Statistics, scheme: str, rules: str, n_starts: int) -> tuple[Problem, State]:
    """The problem and the random starts of a scheme; methods of one scheme share them."""
    method = method_named(scheme)
    p = Problem.of(stats, method.scheme, rules)
    B, C = draw_starts(p, method, N_COMPONENTS, seeds_of(0), range(n_starts))
    return p, begin(p, method.scheme, B, C)


def _work(case: Case, starts: Callable[..., tuple[Problem, State]], n_iter: int) -> Callable[[], Any]:
    method = method_named(case.method)
    p, state = starts(method.scheme.name, case.rules, case.n_starts, case.diagonal)
    if case.engine == "cpu":
        return lambda: cpu.iterate(p, method, state, Course(n_iter, single=case.dtype == SINGLE))
    if case.engine == "numpy":
        return lambda: solver.iterate(p, method, state, Course(n_iter))
    return lambda: [plain_loop(p, B, C, n_iter) for B, C in zip(state.B, state.C, strict=True)]


def plain_loop(p: Problem, B: np.ndarray, C: np.ndarray, n_iter: int) -> tuple[np.ndarray, np.ndarray]:
    """PNNMF as the paper has it (eq. 4-5), as one would write it in NumPy, one start at a time."""
    L, K, penalty, tiny = p.L, p.K if p.K.ndim == 2 else np.diag(p.K), p.penalty, np.finfo(np.float64).tiny
    for _ in range(n_iter):
        B = B * np.maximum(L.T @ C.T - penalty * B, 0) / np.maximum(K @ B @ (C @ C.T), tiny)
        C = C * np.maximum(B.T @ L.T - penalty * C, 0) / np.maximum(B.T @ K @ B @ C, tiny)
    return B, C


def _row(case: Case, seconds: float, rates: dict[str, float], sizes: Sizes, stats: Statistics) -> Row:
    per_update = seconds / (case.n_starts * sizes.n_iter)
    work = operations_of_update(case.method, case.rules, stats.n_columns, N_COMPONENTS, sizes.subjects, case.diagonal)
    operations = sum(work.values())
    return {
        "method": case.label,
        "rules": case.rules,
        "precision": case.dtype,
        "engine": case.engine,
        "s per 10⁶ updates": per_update * MILLION,
        "updates/s": 1 / per_update,
        "operations": operations,
        "GFLOP/s": operations / per_update / 1e9,
        "fraction of gemm": operations / per_update / rates[case.dtype],
    }


def _terms_table(sizes: Sizes) -> Table:
    """How the operations of an update are made up."""
    rows = []
    for method, rules in (("PNNMF", "paper"), ("DL", "default"), ("PPNMF", "paper")):
        terms = operations_of_update(method, rules, 20, N_COMPONENTS, sizes.subjects)
        rows += [{"method": f"{method}, {rules}", "term": term, "operations": n} for term, n in terms.items()]
    return Table("Operations of one update (20 columns, dense K)", rows)


def _targets(rows: list[Row]) -> list[Target]:
    def cost(method: str, rules: str, dtype: str, per: str = "s per 10⁶ updates") -> float:
        found = [r[per] for r in rows if (r["method"], r["rules"], r["precision"]) == (method, rules, dtype)
                 and r["engine"] == "cpu"]  # fmt: skip
        return float(found[0]) if found else np.nan

    if np.isnan(cost(*BASE)):
        return [not_run("multistart kernels", "", "numba is not installed")]
    with_C = [m for m in PAPER_METHODS if not method_named(m).scheme.projective and m != "PNNMF"]
    speed = cost(*BASE, "GFLOP/s")
    slower = {m: speed / cost(m, "paper", DOUBLE, "GFLOP/s") for m in with_C}
    default = {m: cost(m, "default", DOUBLE) / cost(m, "paper", DOUBLE) for m in PAPER_METHODS}
    single = {m: cost(m, "paper", DOUBLE) / cost(m, "paper", SINGLE) for m in PAPER_METHODS}
    loop = next(r["s per 10⁶ updates"] for r in rows if r["engine"] == "loop")
    return [
        at_least("PNNMF, paper rules, float64: fraction of dgemm", cost(*BASE, "fraction of gemm"), 0.35),
        at_most("other methods with C: time per operation over PNNMF's (the worst)", *_worst(slower, 1.5)),
        at_most("default rules over paper rules, float64 (the worst)", *_worst(default, 2)),
        at_least("PNNMF: float32 over float64, paper rules, times faster", single["PNNMF"], 1.6,
                 note=f"all methods: {min(single.values()):.2f} ({min(single, key=single.__getitem__)}) to "
                      f"{max(single.values()):.2f}"),
        Target("PNNMF: plain NumPy loop over kernels, times slower", "", loop / cost(*BASE), None),
    ]  # fmt: skip


def _worst(ratios: dict[str, float], goal: float) -> tuple[float, float, str]:
    name = max(ratios, key=ratios.__getitem__)
    return ratios[name], goal, f"{name}; median over methods {np.median(list(ratios.values())):.2f}"


def _first_calls(sizes: Sizes) -> tuple[Table, Target]:
    """What the first call costs in a fresh process: with nothing compiled before, and with the cache on disk."""
    what = "first call of the kernels, nothing compiled before, seconds"
    if not cpu.available() or not sizes.first_call:
        why = "tiny sizes only" if cpu.available() else "numba is not installed"
        return Table("First call of the kernels", []), not_run(what, "≤ 15", why)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for state in ("nothing compiled", "compiled before (cached on disk)"):
            call = [sys.executable, "-m", "icofactor_lab.bench.updates"]
            done = subprocess.run(call, env={**os.environ, "NUMBA_CACHE_DIR": folder}, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"the first-call process failed: {done.stderr.strip()[-500:]}")
            loading, calling, again = map(float, done.stdout.split())
            rows.append({"cache": state, "loading the kernels (s)": loading, "first call (s)": calling,
                         "second call (s)": again})  # fmt: skip
    first = rows[0]["loading the kernels (s)"] + rows[0]["first call (s)"]  # type: ignore[operator]
    return Table("First call of the kernels in a fresh process, float64", rows), at_most(what, float(first), 15)


def _drawn(rows: list[Row]) -> Any:
    """Seconds of 10⁶ updates, one group of bars per method."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    kinds = [(r, p) for r in ("paper", "default") for p in ("float64", "float32")]
    colours = (BLUE, SKY, RED, ORANGE)
    figure, ((ax,),) = panels(1, 1, (7.5, 0.42 * len(names) + 1.2))
    for row in rows:
        kind = kinds.index((row["rules"], row["precision"]))
        y, seconds = names.index(row["method"]) + 0.2 * (kind - 1.5), row["s per 10⁶ updates"]
        ax.barh(y, seconds, 0.18, color=colours[kind])
        share = f"  {seconds:.2g} s, {100 * row['fraction of gemm']:.0f} %"
        ax.text(seconds, y, share, va="center", fontsize=5)
    for kind, (rules, precision) in enumerate(kinds):
        ax.barh(np.nan, 1, color=colours[kind], label=f"{rules} rules, {precision}")
    methods_on_y(ax, names)
    ax.set_xlabel("seconds for 10⁶ updates (and % of the matrix product's speed)", fontsize=8)
    ax.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.06), ncols=4)
    ax.margins(x=0.12)
    return figure


def main() -> None:
    """What a fresh process pays."""
    p, state = prepared(statistics(8, level=2), "PNNMF", "paper", 8)
    marks = [time.perf_counter()]
    import icofactor.factorization.engines.kernels  # noqa: F401

    marks.append(time.perf_counter())
    for _ in range(2):
        cpu.iterate(p, method_named("PNNMF"), state, Course(2))
        marks.append(time.perf_counter())
    print(*(after - before for before, after in pairwise(marks)))


if __name__ == "__main__":
    main()
