"""Experiment 5, which the paper does not have: one choice at a time, everything else as icofactor's defaults."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from icofactor.streaming.checkpoint import Arrays
from scipy.stats import spearmanr

from icofactor.errors import DivergenceError
from icofactor.factorization._lift import full_basis, loadings
from icofactor.factorization._refine import Refinement, local_error, refine
from icofactor.factorization._solve import Course, Solution
from icofactor.factorization.design import Design
from icofactor.factorization.engines import choose_engine
from icofactor.factorization.extrapolation import momentum, next_tau
from icofactor.factorization.methods import PAPER_METHODS, Method, method_named
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Data, Statistics
from icofactor.factorization.update import State, begin, evaluate
from icofactor.streaming.runners import one_blas_thread
from icofactor_lab.common.outcome import Outcome, Plate, Table
from icofactor_lab.common.plotting import FAINT, legend_beside, marker_of, methods_on_y, panels, plain_log
from icofactor_lab.reproduce.datasets import Dataset, Maps, illustrated
from icofactor_lab.reproduce.maps import hoyer, overlap
from icofactor_lab.reproduce.settings import COVERING_SIGMA, FACES, UPDATES, Context, Sizes


@dataclass(frozen=True)
class Variant:
    """A choice: columns, rules, indicator, carry, level (None: the default one), and which factors are extrapolated."""

    key: str
    name: str
    kind: str = "partition"
    sigma: float | None = None
    rules: str = "default"
    indicator: str = "residual"
    carry: str = "copy"
    level: int | None = None
    b_only: bool = False


VARIANTS = (
    Variant("base", "icofactor's defaults"),
    Variant("literal", "columns: exponential, σ = 0.015", kind="exponential", sigma=0.015),
    Variant("covering", f"columns: exponential, σ = {COVERING_SIGMA}", kind="exponential", sigma=COVERING_SIGMA),
    Variant("smooth", "columns: smooth, σ = 0.1", kind="smooth", sigma=0.1),
    Variant("projected", "indicator: projected (eq. 12)", indicator="projected"),
    Variant("quarter", "B carried to children: divided by four", carry="quarter"),
    Variant("b_only", "extrapolation: B only, no restart", b_only=True),
    Variant("paper_rules", "the paper's rules, partition columns", rules="paper"),
    Variant("paper", "the paper, whole", "exponential", 0.015, "paper", "projected", "quarter", 0),
)
MEASURES = (
    "E/variance, no lift",
    "E/variance, lifted",
    "E/‖X‖², no lift",
    "seconds, no lift",
    "seconds, lifted",
    "Hoyer sparsity of maps",
    "zeros in B",
    "overlap of maps",
)


def run(context: Context) -> Outcome:
    """All variants with all eleven methods on one dataset."""
    dataset, sizes = illustrated(context.datasets), context.sizes
    found = []
    for i, variant in enumerate(VARIANTS):
        compute = partial(_variant, dataset, variant, sizes, context.seed)
        found.append(context.piece(f"ablation.{variant.key}", compute)["measured"])
        context.show((i + 1) / (len(VARIANTS) + 1))
    division = context.piece("ablation.division", partial(_division, dataset, sizes, context.seed))["measured"]
    return _section(np.stack(found), division, dataset, sizes)


def _variant(dataset: Dataset, variant: Variant, sizes: Sizes, seed: int) -> Arrays:
    maps = dataset.load()
    measured = np.full((len(PAPER_METHODS), len(MEASURES)), np.nan)
    for i, name in enumerate(PAPER_METHODS):
        try:
            with one_blas_thread():
                measured[i] = _fit(maps, variant, method_named(name), sizes, seed)
        except DivergenceError:  # shown by the empty row
            continue
    return {"measured": measured}


def _fit(maps: Maps, variant: Variant, method: Method, sizes: Sizes, seed: int) -> list[float]:
    """Starts, refinement and lift; what MEASURES names."""
    begin_ = time.perf_counter()
    source = maps.source
    level = sizes.level if variant.level is None else variant.level
    design = Design(maps.sites, variant.kind, level, variant.sigma)
    stats = source.statistics(design)
    best = _best(stats, method, variant, sizes, seed)
    schedule = Refinement(sizes.few_steps, FACES, UPDATES, variant.indicator, variant.carry)
    refined = refine(source, design, stats, best, schedule, engine="numpy")
    coarse_seconds = time.perf_counter() - begin_
    B, C, scheme = np.asarray(refined.solution.B), np.asarray(refined.solution.C), method.scheme
    W = refined.design.matrix @ B
    mean = maps.X.mean(axis=1)
    basis = full_basis(maps.X, refined.design, refined.stats, B, C, scheme, refined.solution.penalty, mean)
    lifted = basis.error(loadings(basis.WX, basis.WW, scheme, refined.solution.penalty), stats.sq_norm)
    seconds = time.perf_counter() - begin_
    coarse = refined.solution.error
    return [
        coarse / maps.variance, lifted / maps.variance, coarse / stats.sq_norm, coarse_seconds, seconds, hoyer(W),
        float((B == 0).mean()), overlap(W),
    ]  # fmt: skip


def _best(stats: Statistics, method: Method, variant: Variant, sizes: Sizes, seed: int) -> Solution:
    """The best of some starts after their updates."""
    p = Problem.of(stats, method.scheme, variant.rules)
    B, C = draw_starts(p, method, sizes.n_components, seeds_of(seed), range(sizes.ablation_starts))
    state, n_iter = begin(p, method.scheme, B, C), sizes.ablation_updates
    with np.errstate(over="ignore", invalid="ignore"):
        if variant.b_only:
            for _ in range(n_iter):
                state = _advance_B(p, method, state)
        else:
            engine = choose_engine(sizes.engine, p, method, sizes.n_components, n_iter * sizes.ablation_starts)
            state = engine.iterate(p, method, state, Course(n_iter)).state
    objective = np.where(np.isfinite(state.objective), state.objective, np.inf)
    i = int(np.argmin(objective))
    if not np.isfinite(objective[i]):
        raise DivergenceError(f"{method.name} diverged")
    ends = (np.array([state.objective[i]]), np.array([state.error[i]]))
    best = Solution(state.B[i], state.C[i], *ends, n_iter, False, method.name, variant.rules, p.penalty)
    return replace(best, tau=float(state.tau[i]))


def _advance_B(p: Problem, method: Method, s: State) -> State:
    """One update as the paper extrapolates, B only and whatever the objective does, of the default rules' updates."""
    scheme = method.scheme
    assert s.terms is not None
    y = B = scheme.update_B(p, s.B, s.C, s.terms)
    tau = s.tau
    if method.extrapolation is not None and s.age >= method.plain_updates:
        B = method.extrapolation(y, s.y_B, momentum(tau)[:, None, None], scheme.signed_maps)
        tau = next_tau(tau)
    G = p.gram(B)
    C = scheme.update_C(p, B, s.C, G)
    terms, E, objective = evaluate(p, scheme, B, C, G)
    return State(B, C, terms, E, objective, y, C, tau, s.age + 1)


DIVISION = ("E/‖X‖²", "jump of E, B divided by four", "jump of E, B copied", "eq. 12 against the residual (ρ)")
KINDS = {
    "partition": ("partition", None),
    "exponential 0.015": ("exponential", 0.015),
    f"exponential {COVERING_SIGMA}": ("exponential", COVERING_SIGMA),
    "smooth 0.1": ("smooth", 0.1),
}


def _division(dataset: Dataset, sizes: Sizes, seed: int) -> Arrays:
    """`after_division` of LE-PNNMF on every kind of columns."""
    maps, rows = dataset.load(), []
    for kind, sigma in KINDS.values():
        design = Design(maps.sites, kind, sigma=sigma)
        stats = maps.source.statistics(design)
        best = _best(stats, method_named("LE-PNNMF"), Variant("", "", kind, sigma), sizes, seed)
        rows.append(after_division(maps.X, design, stats, best))
    return {"measured": np.array(rows)}


def after_division(X: np.ndarray, design: Design, stats: Statistics, best: Solution) -> list[float]:
    """How exact the paper's local error and its carried B are, right after dividing the five faces worst by eq. 12.

    What DIVISION names: E/‖X‖² before; the change of E, with B divided by four and with B copied; the rank correlation
    of eq. 12 with the true residual.
    """
    source = Data(X, design.sites)
    errors = [local_error(i, stats, design, best.B, best.C, source) for i in ("projected", "residual")]
    jumps = []
    for carry in ("quarter", "copy"):
        finer = refine(source, design, stats, best, Refinement(1, FACES, 0, "projected", carry))
        full = X - finer.design.matrix @ (finer.solution.B @ finer.solution.C)
        jumps.append(float((full**2).sum()) / best.error - 1)
    return [best.error / stats.sq_norm, *jumps, float(spearmanr(errors[0], errors[1]).statistic)]


def _section(found: np.ndarray, division: np.ndarray, dataset: Dataset, sizes: Sizes) -> Outcome:
    about = (
        f"{dataset.name}; best of {sizes.ablation_starts} starts × {sizes.ablation_updates} updates on "
        f"{20 * 4**sizes.level} faces, {sizes.few_steps} refinements of {FACES} faces, {UPDATES} updates each; errors "
        "over the between-subject variance, with the basis as it is on the columns (no lift) and lifted to all sites."
    )
    rows = [
        {"choice": variant.name, "method": name, **dict(zip(MEASURES, row.tolist(), strict=True))}
        for variant, table in zip(VARIANTS, found, strict=True)
        for name, row in zip(PAPER_METHODS, table, strict=True)
    ]
    exact = [
        {"columns": kind, **dict(zip(DIVISION, row.tolist(), strict=True))}
        for kind, row in zip(KINDS, division, strict=True)
    ]
    ours = "Error over between-subject variance of all eleven methods under each choice, lifted and not lifted."
    return Outcome(
        "ablation",
        "Ablation",
        [about],
        [
            Table("One choice at a time", rows, "Empty rows: the method diverged.", "ablation"),
            Table("Right after a division (LE-PNNMF, twenty columns)", exact, name="division"),
        ],
        plates=[Plate("fig7_ablation", partial(_drawn, found, [v.name for v in VARIANTS]), ours)],
        facts={"found": found, "division": division},
    )


def _drawn(found: np.ndarray, names: list[str]) -> Any:
    """Errors of all methods under each choice."""
    figure, (pair,) = panels(1, 2, (11.5, 0.42 * len(names) + 1.3), (2.5, 1.3, 0.55, 0.3), (0.06, 0), sharey=True)
    shift = np.linspace(-0.36, 0.36, len(PAPER_METHODS))
    for ax, measure, title in zip(pair, (0, 1), ("not lifted", "lifted"), strict=True):
        for i, m in enumerate(PAPER_METHODS):
            ax.plot(found[:, i, measure], np.arange(len(names)) + shift[i], ms=4.5, **marker_of(m))
        for edge in range(len(names) - 1):
            ax.axhline(edge + 0.5, color=FAINT, linewidth=0.8, zorder=0)
        plain_log(ax, "x")
        ax.set_title(title, fontsize=9, loc="left")
        ax.set_xlabel("error / between-subject variance", fontsize=8)
    methods_on_y(pair[0], names)
    legend_beside(pair[1])
    return figure
