"""What docs/measured.md claims of `choose_n_components`, measured.

python -m icofactor_lab.docs_tables.selection simulated [--runs 20] [--ranks 5,8,12] [--hemisphere left] [--out OUT]
python -m icofactor_lab.docs_tables.selection noise [--runs 10] [--fwhm 8,16,32,64]
python -m icofactor_lab.docs_tables.selection thickness OUT      (needs ICOFACTOR_TEST_DATA)
    all three for CD-PNNMF, or with --method NAME
python -m icofactor_lab.docs_tables.selection sklearn [--init random]            (needs ICOFACTOR_TEST_DATA)
python -m icofactor_lab.docs_tables.selection spin
python -m icofactor_lab.docs_tables.selection bootstrap [--runs 30]
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np

import icofactor as ico
from icofactor.assessment.selection.choice import Choice
from icofactor.assessment.selection.choose import choose_n_components
from icofactor.cohort.cohort import Cohort
from icofactor_lab.common.data import thickness_cohort
from icofactor_lab.common.timing import timed
from icofactor_lab.docs_tables import number, run_task


def simulated(options: argparse.Namespace) -> None:
    """Cohorts of known rank at the simulator's standard noise: how often the rank is found within ±1."""
    for rank in map(int, options.ranks.split(",")):
        found, seconds = [], []
        for seed in range(options.runs):
            cohort = ico.simulate_cohort(
                n_subjects=100, n_components=rank, random_state=seed, hemisphere=options.hemisphere
            )
            choice, took = _timed(cohort, options.method)
            found.append(choice.recommended)
            seconds.append(took)
            if options.out is not None:
                choice.save(options.out / f"rank-{rank}_seed-{seed}", overwrite=True)
            print(f"  rank {rank} seed {seed}: {choice.recommended} in {took:.1f} s", flush=True)
        right = sum(k is not None and abs(k - rank) <= 1 for k in found)
        print(f"rank {rank}: {found}; within ±1 in {right} of {len(found)}; at most {max(seconds):.0f} s", flush=True)


def noise(options: argparse.Namespace) -> None:
    """A mean map and smooth noise, no components: is a number recommended?"""
    for fwhm in map(float, options.fwhm.split(",")):
        rounds = max(1, round(10 * (fwhm / 16) ** 2))
        found = [_timed(smooth_noise(rounds, seed), options.method)[0].recommended for seed in range(options.runs)]
        none, actual = sum(k is None for k in found), 16 * np.sqrt(rounds / 10)
        print(f"noise of FWHM {actual:.1f} mm: {found}; no structure in {none} of {len(found)}", flush=True)


def smooth_noise(rounds: int, seed: int, n_subjects: int = 100) -> Cohort:
    """Mean map × (1 + smooth noise), noise as strong as all variance of the simulator's standard cohort."""
    from icofactor.cohort import simulate

    sites = ico.Sites.named("fsaverage5")
    mean = simulate.group_map(simulate.MODALITIES["thickness"], sites, "left")
    X = np.maximum(mean * (1 + np.sqrt(0.165 / 0.835) * smooth_maps(rounds, seed, n_subjects)), 0.02 * mean)
    return Cohort(X=X, subjects=tuple(f"sub-{i:03d}" for i in range(n_subjects)), sites=sites)


def smooth_maps(rounds: int, seed: int, n: int) -> np.ndarray:
    """n maps of smooth noise on the left hemisphere of fsaverage5, standard deviation 1."""
    from icofactor.sphere.operators import neighbour_average, smooth_rows

    sites = ico.Sites.named("fsaverage5")
    white = np.random.default_rng(1000 + seed).standard_normal((n, sites.n)).astype(np.float32)
    e = smooth_rows(white, neighbour_average(sites.triangles), rounds)
    return np.asarray(e / e.std())


def thickness(options: argparse.Namespace) -> None:
    """Ranks 2-20 × 20 split halves × 10 starts on 200 real subjects, both hemispheres."""
    choice, took = _timed(thickness_cohort(), options.method)
    choice.save(options.out, overwrite=True)
    print(f"{took:.1f} s, {time.process_time():.1f} s of processor time\n{choice}")


def sklearn(options: argparse.Namespace) -> None:
    """The same split-half fits by scikit-learn at full resolution, one start each, from a few fits."""
    from sklearn.decomposition import NMF

    warnings.simplefilter("ignore")
    cohort = thickness_cohort()
    X = np.ascontiguousarray(cohort.X[:100][:, cohort.mask])
    seconds = {}
    for rank in (2, 8, 14, 20):
        given = {"init": options.init, "max_iter": options.max_iter, "random_state": 0}
        model = NMF(rank, solver="cd", tol=1e-4, **given)
        _, seconds[rank] = timed(partial(model.fit, X))
        print(f"  rank {rank}: {seconds[rank]:.1f} s, {model.n_iter_} iterations", flush=True)
    ranks = np.arange(2, 21)
    total = 40 * np.interp(ranks, list(seconds), list(seconds.values())).sum()
    print(f"760 fits (19 ranks × 20 splits × 2 halves), one start each: {total:.0f} s")


def spin(options: argparse.Namespace) -> None:
    """p-values of the spin null on maps that have nothing to do with the atlas."""
    from scipy.stats import kstest

    from icofactor.assessment.atlas import Atlas, enrichment

    sites = ico.Sites.named("fsaverage5")
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((30, 3))
    labels = (sites.coordinates @ (centres / np.linalg.norm(centres, axis=1)[:, None]).T).argmax(axis=1)
    wall = sites.coordinates @ np.array([1.0, 0.0, 0.0]) > 0.85
    maps = np.exp(smooth_maps(160, 0, 200))
    atlas = Atlas(labels, tuple(f"region {i}" for i in range(30)))
    p = enrichment(maps, sites, ~wall, atlas, n_spins=options.spins, random_state=0).p
    region = rng.integers(30, size=len(maps))
    print(
        f"Kolmogorov-Smirnov p = {kstest(p[np.arange(len(maps)), region], 'uniform').pvalue:.3f} over {len(maps)} maps"
    )


def bootstrap(options: argparse.Namespace) -> None:
    """Standard errors of the bootstrap against the spread over cohorts of other subjects from the same population."""
    from icofactor.assessment.bootstrap import bootstrap as resampled

    for mesh, level, n, rank in (("fsaverage3", 1, 40, 3), ("fsaverage4", 2, 60, 4), ("fsaverage4", 2, 100, 6)):
        # the simulator draws subjects one by one: its rows are independent samples
        X = ico.simulate_cohort((options.runs + 1) * n, rank, mesh=mesh, random_state=0).X
        fit = lambda rows, rank=rank, mesh=mesh, level=level: ico.CorticalFactorization(
            rank, mesh=mesh, hemi="left", level=level
        ).fit(rows)
        model = fit(X[:n])
        found = resampled(model, X[:n], n_resamples=options.runs)
        others = [_as_model(model, fit(X[first : first + n]), X[:n]) for first in range(n, len(X), n)]
        size = [np.linalg.norm(np.std(values, axis=0, ddof=1)) for values in zip(*others, strict=True)]
        print(
            f"{mesh}, {n} subjects, {rank} components: bootstrap / other cohorts: maps "
            f"{np.linalg.norm(found.component_se) / size[0]:.2f}, loadings "
            f"{np.linalg.norm(found.loading_se) / size[1]:.2f}",
            flush=True,
        )


def _as_model(model: ico.CorticalFactorization, other: ico.CorticalFactorization, X: np.ndarray) -> list[np.ndarray]:
    """Maps of another fit and loadings of X on them, in the model's order and scale."""
    theirs = other.transform(X)
    scale, order = np.sqrt((theirs**2).mean(axis=0)), ico.match_components(model, other).b
    return [(other.components_ * scale[:, None])[order], (theirs / scale)[:, order]]


def _timed(cohort: Cohort, method: str) -> tuple[Choice, float]:
    return timed(lambda: choose_n_components(cohort, range(2, 21), method=method))


def main() -> None:
    method = {"--method": {"default": "CD-PNNMF"}}
    run_task(
        __doc__,
        {
            simulated: {
                "--runs": number(20),
                "--ranks": {"default": "5,8,12"},
                "--hemisphere": {"default": "left"},
                "--out": {"type": Path, "help": "folder to keep every run's curves in"},
                **method,
            },
            noise: {
                "--runs": number(10),
                "--fwhm": {"default": "8,16,32,64", "help": "widths of the noise in mm"},
                **method,
            },
            thickness: {"out": {"type": Path}, **method},
            sklearn: {
                "--max-iter": number(2000),
                "--init": {"choices": ["nndsvda", "random"], "help": "(default: scikit-learn's own, nndsvda)"},
            },
            spin: {"--spins": number(500)},
            bootstrap: {"--runs": number(30)},
        },
    )


if __name__ == "__main__":
    main()
