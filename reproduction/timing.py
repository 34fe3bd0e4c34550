"""Experiment 1: the time of a million updates with twenty columns, of one at full resolution, and their ratio.

Times are those of the processors, summed over threads: what else the machine does changes them little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

import icofactor as ico
from reproduction.formulas import Program
from reproduction.settings import LITERAL
from reproduction.study import Study

MILLION = 1_000_000
# Speed-ups that the paper reports, least and largest.
PAPER_RANGE = (2.4e3, 6.25e5)
# Largest memory in bytes for the four n × n matrices of a program that multiplies from left to right.
LARGEST_PRODUCTS = 8e9


def run(study: Study) -> None:
    """Time all eleven methods on the data of the paper's figures."""
    maps = study.lead.load()
    stats = ico.Statistics.from_data(maps.X, LITERAL.design(maps.sites))
    rows = []
    for method in ico.PAPER_METHODS:
        # Threads of BLAS wait for each other busily, which would count.
        with threadpool_limits(1):
            seconds = {
                "compiled": million_compiled(stats, method, study),
                "formula": million_in_numpy(stats, method, study),
                **full_resolution(maps.vertices, method, study),
            }
        for quantity, values in seconds.items():
            rows.append(
                {
                    "method": method,
                    "what": quantity,
                    "seconds": np.median(values),
                    "repeats": len(values),
                }
            )
    study.write_table("timing", rows)
    study.save_figure("1_timing", draw(rows))


def seconds_of(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the processor times of several calls, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        times.append(time.process_time() - begin)
    return times


def million_compiled(stats: ico.Statistics, method: str, study: Study) -> list[float]:
    """Return the seconds of a million updates of many starts in compiled code."""
    sizes = study.sizes

    def starts() -> None:
        ico.multistart(
            stats,
            method,
            sizes.n_components,
            n_starts=sizes.starts,
            n_iter=sizes.updates,
            rules="paper",
            engine="cpu",
            random_state=study.seed,
        )

    scale = MILLION / (sizes.starts * sizes.updates)
    return [scale * seconds for seconds in seconds_of(starts, sizes.repeats)]


def million_in_numpy(stats: ico.Statistics, method: str, study: Study) -> list[float]:
    """Return the seconds of a million updates of one start, scaled from fewer."""
    sizes = study.sizes
    L = np.asarray(stats.L)
    B, C = random_factors(L, sizes.n_components, study.seed)
    program = Program(method, stats.K.toarray(), L, B, C, "as read")

    def updates() -> None:
        # Dictionary learning may leave the finite numbers from a random start.
        with np.errstate(all="ignore"):
            for _ in range(sizes.formula_updates):
                program.update()

    scale = MILLION / sizes.formula_updates
    return [scale * seconds for seconds in seconds_of(updates, sizes.repeats)]


def full_resolution(vertices: np.ndarray, method: str, study: Study) -> dict[str, list[float]]:
    """Return the seconds of one update with a column for every vertex, for each way to make the products."""
    sizes = study.sizes
    # With a column for every vertex D is the identity, so L is the data themselves.
    L = np.ascontiguousarray(vertices.T)
    K = sp.csr_array(sp.eye_array(len(vertices)))
    B, C = random_factors(L, sizes.n_components, study.seed)
    repeats = {"without M": sizes.repeats}
    if method.endswith("PPNMF") and 4 * 8 * len(vertices) ** 2 < LARGEST_PRODUCTS:
        # The others have no M: their program is the same in every order.
        repeats |= {"ordered": sizes.repeats, "as read": sizes.product_repeats}
    seconds = {}
    for products, n_repeats in repeats.items():
        program = Program(method, K, L, B, C, products)
        with np.errstate(all="ignore"):
            seconds[products] = seconds_of(program.update, n_repeats)
    return seconds


def random_factors(L: np.ndarray, n_components: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw positive factors."""
    rng = np.random.default_rng(seed)
    n_subjects, n_columns = L.shape
    return rng.random((n_columns, n_components)), rng.random((n_components, n_subjects))


def draw(rows: list[dict]) -> Figure:
    """Draw the times of all methods."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    kinds = ("compiled", "formula", "without M", "ordered", "as read")
    for kind, marker in zip(kinds, "os^vD", strict=True):
        kind_rows = [row for row in rows if row["what"] == kind]
        label = "10⁶ coarse updates" if kind in kinds[:2] else "one full update"
        seconds = [row["seconds"] for row in kind_rows]
        axes.plot(seconds, [row["method"] for row in kind_rows], marker, label=f"{label}, {kind}")
    axes.set_xscale("log")
    axes.set_xlabel("seconds of processor time")
    figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    return figure
