"""Measure the choices behind the defaults of CorticalFactorization; prints the tables of docs/defaults.md.

    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults tables [--repeats 5] [--only TITLE]
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults claims [--only TITLE]
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults speed [--repeats 5]
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults weights [--splits 10]
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults penalty
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults ends [--seeds 16]
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.defaults sweeps

Real thickness (100 subjects, left faces of fsaverage5) when ICOFACTOR_TEST_DATA is set, a simulated cohort otherwise.
`tables`: the median over `--repeats` seeds of the full-resolution error over the between-subject variance, its worst
case, and the median time of one fit; rows of one table are interleaved, so that noise hits all alike. `claims`: what
the page says of extrapolation, zeros, halving and overlapping columns. `speed`: the default fit of 100 people, both
hemispheres, beside updates of opNMF in turn, and 1000 starts of parts (docs/benchmarks.md). `weights`: what area
weights change on real thickness, both hemispheres, on three meshes; the folder `resample` of the data holds spheres and
areas. `penalty`: shares explained with the paper's constant penalties and with penalties relative to the data, two
starts of 600 updates, of thickness in mm and in metres. `ends`: default fits of CD-PNNMF whose starts may end from
update 50 on, beside fits with the rule of runs that begin on a plateau. `sweeps`: parts with 15, 60 and 300 coordinate
sweeps in the lift.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

import icofactor as ico
from icofactor.factorization._refine import Refinement
from icofactor.factorization.methods import METHODS
from icofactor.factorization.schemes.projective import ProjectiveNMF
from icofactor.preprocessing import Resampler
from icofactor.preprocessing.templates import find_meshes
from icofactor_lab.common.data import data_folder, thickness_cohort, thickness_is_there, thickness_on_faces
from icofactor_lab.common.opnmf import opnmf_path
from icofactor_lab.common.timing import timed
from icofactor_lab.docs_tables import number, run_task
from icofactor_lab.reproduce.ablation import after_division
from icofactor_lab.reproduce.convergence import reached

TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "Start level": {f"level {i}": {"level": i} for i in range(4)},
    "Number of starts": {f"{n} starts": {"n_starts": n} for n in (1, 3, 5, 10, 20, 50)},
    "Tolerance": {f"tol {t:g}": {"tol": t} for t in (1e-3, 1e-4, 1e-5, 1e-6)},
    "Halving": {
        "20 starts": {"n_starts": 20, "tol": 0.0, "n_iter": 300},
        "20 starts, halving": {"n_starts": 20, "tol": 0.0, "n_iter": 300, "halving": True},
        "50 starts, halving": {"n_starts": 50, "tol": 0.0, "n_iter": 300, "halving": True},
    },
    "Refinement": {
        "20 faces, none": {"level": 0, "refinement": None},
        "20 faces, 10 x 5": {"level": 0, "refinement": Refinement(10, 5, 10)},
        "20 faces, 60 x 5": {"level": 0, "refinement": Refinement(60, 5, 10)},
        "320 faces, none": {"refinement": None},
        "320 faces, 10 x 5": {},
        "320 faces, 60 x 5": {"refinement": Refinement(60, 5, 10)},
    },
    "Lift and polish": {
        "no lift": {"lift": False},
        "lift": {},
        "lift + 5 polish": {"polish": 5},
        "lift + 20 polish": {"polish": 20},
    },
    "Columns": {"partition": {}, "smooth": {"columns": "smooth"}},
    "Method": {name: {"method": name} for name in ico.METHODS},
}


def tables(options: argparse.Namespace) -> None:
    """Error and time of fits, one choice changed at a time."""
    warnings.simplefilter("ignore")
    data = thickness_on_faces()
    print(f"{data.name}, {data.size}; median of {options.repeats} seeds; error / between-subject variance\n")
    ico.CorticalFactorization(n_starts=1).fit(data.Xs)  # imports and first touches
    for title, rows in TABLES.items():
        if options.only and options.only not in title:
            continue
        found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in rows}
        for seed in range(options.repeats):
            for name, changes in rows.items():
                model = ico.CorticalFactorization(random_state=seed, **changes)
                _, spent = timed(partial(model.fit, data.Xs))
                found[name].append((model.error_ / model.total_variance_, spent, model.n_iter_))
        print(f"| {title} | error / variance | worst | updates | seconds |\n|---|---|---|---|---|")
        for name, runs in found.items():
            error, seconds, updates = (np.array(column) for column in zip(*runs, strict=True))
            print(
                f"| {name} | {np.median(error):.4f} | {error.max():.4f} | {np.median(updates):.0f} "
                f"| {np.median(seconds):.2f} |"
            )
        print(flush=True)


# ------------------------------------------------------------------ claims


@cache
def faces() -> ico.Sites:
    return ico.Sites.named("fsaverage5", on="faces")


def extrapolation(X: np.ndarray) -> None:
    """Median of ten starts, 1000 updates, 20 faces: when E- and LE- reach what the plain method has after 1000."""
    stats = ico.Statistics.from_data(X, ico.Design(faces()))
    print("| rules, scheme | plain E/‖X‖² at 1000 | E- reaches it at / ends at | LE- reaches it at / ends at |")
    print("|---|---|---|---|")
    for rules in ("paper", "default"):
        for scheme in ("DL", "PNNMF", "SPNNMF", "PPNMF"):
            paths = {}
            for prefix in ("", "E-", "LE-"):
                if prefix + scheme in ico.METHODS:
                    runs = [
                        ico.solve(stats, prefix + scheme, 10, n_iter=1000, rules=rules, random_state=seed).errors
                        for seed in range(10)
                    ]
                    paths[prefix] = np.median(runs, axis=0) / stats.sq_norm
            goal = paths[""][-1]
            at = {p: reached(path, goal) for p, path in paths.items()}
            ends = {p: f"{'never' if at[p] is None else at[p]} / {path[-1]:.6f}" for p, path in paths.items()}
            cells = [ends.get(p, "–") for p in ("E-", "LE-")]
            print(f"| {rules} {scheme} | {goal:.6f} | " + " | ".join(cells) + " |")


def zeros(X: np.ndarray) -> None:
    """Zeros in B, ten starts together, paper rules, 1000 updates; faces where X is zero are zero in all of them."""
    print("| | E-, 20 faces | LE-, 20 faces | E-, 320 faces | LE-, 320 faces |\n|---|---|---|---|---|")
    for scheme in ("PNNMF", "SPNNMF", "PPNMF"):
        cells = []
        for level in (0, 2):
            stats = ico.Statistics.from_data(X, ico.Design(faces(), level=level))
            for prefix in ("E-", "LE-"):
                found = [
                    ico.solve(stats, prefix + scheme, 10, n_iter=1000, rules="paper", random_state=seed).B
                    for seed in range(10)
                ]
                cells.append(str(sum(int((B == 0).sum()) for B in found)))
        print(f"| {scheme} | " + " | ".join(cells) + " |")


def halving(X: np.ndarray) -> None:
    """Successive halving of 64 starts, 1000 updates, 320 faces, three seeds: updates, time, and what it costs."""
    stats = ico.Statistics.from_data(X, ico.Design(faces(), level=2))
    print(
        "| method | updates made | time | final objective above that of all starts (three seeds) | spread of starts |"
    )
    print("|---|---|---|---|---|")
    for method in ("LE-PNNMF", "CD-PNNMF", "E-DL", "LE-PPNMF"):
        rows = []
        for seed in range(3):
            runs = []
            for half in (False, True):
                given: dict[str, Any] = {
                    "n_starts": 64,
                    "n_iter": 1000,
                    "halving": half,
                    "engine": "cpu",
                    "random_state": seed,
                }
                runs.append(timed(partial(ico.multistart, stats, method, 10, **given)))
            (full, slow), (half_run, quick) = runs
            best, ends = full.objective[-1], full.final_objectives
            rows.append(
                (
                    half_run.start_n_iter.sum() / full.start_n_iter.sum(),
                    quick / slow,
                    half_run.objective[-1] / best - 1,
                    np.median(ends) / best - 1,
                )
            )
        made, spent, above, spread = np.array(rows).T
        listed = ", ".join(f"{x:.1e}" for x in above)
        rest = f"{listed} | median {spread.mean():.1e} above best"
        print(f"| {method} | {made.mean():.0%} | {np.median(spent):.0%} | {rest} |")


def overlap(X: np.ndarray) -> None:
    """How exact the paper's local error and its carried B are: right after dividing the five faces worst by eq. 12."""
    print("| kind, σ | E/‖X‖² | jump, quarter | jump, copy | rank correlation of eq. 12 with the residual |")
    print("|---|---|---|---|---|")
    cases = [("partition", None)] + [("exponential", s) for s in (0.015, 0.03, 0.0692, 0.1)]
    for kind, sigma in cases + [("smooth", s) for s in (0.0692, 0.1)]:
        design = ico.Design(faces(), kind, sigma=sigma)
        stats = ico.Statistics.from_data(X, design)
        found = ico.solve(stats, "LE-PNNMF", 10, n_iter=300, random_state=0)
        error, quarter, copied, rank = after_division(X, design, stats, found)
        label = kind if sigma is None else f"{kind} {sigma}"
        print(f"| {label} | {error:.4f} | {quarter:+.2%} | {copied:+.2%} | {rank:.2f} |")


PARTS: dict[str, Callable[[np.ndarray], None]] = {
    "extrapolation": extrapolation,
    "zeros": zeros,
    "halving": halving,
    "overlap": overlap,
}


def claims(options: argparse.Namespace) -> None:
    """Extrapolation, zeros, halving, overlapping columns."""
    warnings.simplefilter("ignore")
    data = thickness_on_faces()
    X = np.ascontiguousarray(data.Xs.T, dtype=np.float64)
    print(f"{data.name}, {data.size}")
    for title, part in PARTS.items():
        if options.only in (None, title):
            print(f"\n## {title}\n\n{part.__doc__}\n")
            part(X)


def speed(options: argparse.Namespace) -> None:
    """The default fit against opNMF, and 1000 starts of parts."""
    warnings.simplefilter("ignore")
    X, sites = _both_hemispheres()
    fit = lambda: ico.CorticalFactorization(10, mesh=sites, random_state=0).fit(X)
    model, updates = fit(), opnmf_path(X.astype(np.float64), 10)
    next(updates)
    pairs = [(timed(fit)[1], timed(lambda: [next(updates) for _ in range(20)])[1] / 20) for _ in range(options.repeats)]
    ours, theirs = np.median(pairs, axis=0)
    print(f"default fit {ours:.3f} s, {1 - model.explained_:.4f} unexplained; first call not counted")
    print(f"opNMF {1e3 * theirs:.2f} ms an update: 10,000 of them take {1e4 * theirs / ours:.0f} times as long")
    deviations = (X - X.mean(axis=0, dtype=np.float64)).T
    stats = ico.Statistics.from_data(deviations, ico.Design(sites, level=2))
    many = lambda: ico.multistart(stats, "parts", 10, n_starts=1000, n_iter=3000, tol=1e-5, random_state=0)
    many()
    print(f"1000 hard starts on {stats.L.shape[1]} faces, ten of them finished: {timed(many)[1]:.2f} s")


def penalty(options: argparse.Namespace) -> None:
    """Constant penalties and penalties relative to the data, for thickness in mm and in metres, and deviations."""
    warnings.simplefilter("ignore")
    X, sites = _both_hemispheres()
    rows = [("DL", "none", 5.0), ("CD-SPNNMF", "none", 0.5), ("DL", "mean", 5.0), ("DL", "zscore", 5.0)]
    print("| | unit | constant | relative | λ, relative |\n|---|---|---|---|---|")
    for method, center, constant in rows:
        for unit, factor in {"mm": 1.0, "m": 1e-3}.items():
            if center == "zscore" and unit == "m":
                continue  # z-scores have no unit
            settings: dict[str, Any] = {"method": method, "center": center, "mesh": sites, "n_starts": 2, "n_iter": 600}
            fits = [
                ico.CorticalFactorization(10, random_state=0, penalty=one, **settings).fit(factor * X)
                for one in (constant, "paper")
            ]
            shares = " | ".join(f"{model.explained_:.4f}" for model in fits)
            print(f"| {method}, center={center} | {unit} | {shares} | {fits[1].solution_.penalty:.3g} |", flush=True)


def ends(options: argparse.Namespace) -> None:
    """Where the starts of CD-PNNMF may end: errors, recurrence and agreement of seeds under two rules."""
    warnings.simplefilter("ignore")
    real, few, many = (
        thickness_on_faces(),
        *(
            ico.simulate_cohort(n, k, mesh=mesh, random_state=seed)
            for n, k, mesh, seed in ((60, 5, "fsaverage4", 7), (100, 10, "fsaverage5", 3))
        ),
    )
    data = {
        real.name: (real.Xs, real.sites),
        "simulated, 60": (few.X, few.sites),
        "simulated, 100": (many.X, many.sites),
    }
    kind: Any = type(METHODS["CD-PNNMF"].scheme)
    rules = {True: 100, False: kind.first_look}
    print("| data | k | updates of a start | error, relative change: mean, largest | found again | seeds agree |")
    print("|---|---|---|---|---|---|")
    for (name, (X, sites)), k in itertools.product(data.items(), (4, 6, 10, 16)):
        fits = {}
        for kind.plateau, kind.first_look in rules.items():
            model = partial(ico.CorticalFactorization, k, method="CD-PNNMF", mesh=sites)
            fits[kind.plateau] = [model(random_state=seed).fit(X) for seed in range(options.seeds)]
        change = [new.error_ / old.error_ - 1 for new, old in zip(fits[False], fits[True], strict=True)]
        made, again, agree = (
            " → ".join(f"{value:.{digits}f}" for value in map(of, fits.values()))
            for digits, of in (
                (0, lambda some: np.mean([one.starts_.start_n_iter for one in some])),
                (2, lambda some: np.nanmean([one.recurrence_ for one in some])),
                (
                    3,
                    lambda some: np.mean(
                        [ico.match_components(*pair).mean for pair in itertools.combinations(some, 2)]
                    ),
                ),
            )
        )
        print(f"| {name} | {k} | {made} | {np.mean(change):+.1e}, {max(change):+.1e} | {again} | {agree} |", flush=True)


def sweeps(options: argparse.Namespace) -> None:
    """Coordinate sweeps of the lift of parts: variance explained, and agreement between halves of the people."""
    warnings.simplefilter("ignore")
    real, simulated = thickness_on_faces(), ico.simulate_cohort(200, 5, mesh="fsaverage5", random_state=3)
    data = {real.name: (real.Xs, real.sites), "simulated, 200, of 5": (simulated.X, simulated.sites)}
    kind: Any = ProjectiveNMF
    print("| data | k | explained with 15, 60, 300 sweeps | halves agree |\n|---|---|---|---|")
    for (name, (X, sites)), k in itertools.product(data.items(), (3, 6, 10, 20)):
        explained, agree = [], []
        for kind.lift_sweeps in (15, 60, 300):
            fits = [ico.CorticalFactorization(k, mesh=sites, random_state=0).fit(some) for some in (X, X[::2], X[1::2])]
            explained.append(f"{fits[0].explained_:.5f}")
            agree.append(f"{ico.match_components(*fits[1:]).mean:.3f}")
        print(f"| {name} | {k} | {', '.join(explained)} | {', '.join(agree)} |", flush=True)


def _both_hemispheres() -> tuple[np.ndarray, ico.Sites]:
    cohort = thickness_cohort() if thickness_is_there() else ico.simulate_cohort(100, 10, hemisphere="both")
    used = np.ones(cohort.sites.n, dtype=bool) if cohort.mask is None else np.asarray(cohort.mask)
    return np.ascontiguousarray(cohort.X[:100, used]), cohort.sites.subset(used)


def weights(options: argparse.Namespace) -> None:
    """What area weights change on fsaverage5, fs_LR 32k and CIVET's mesh."""
    warnings.simplefilter("ignore")
    cohort, folder = thickness_cohort(), data_folder() / "resample"
    print("| mesh | weights (sd) | maps | loadings | unexplained, by number | by weight | halves: none | weighted |")
    print("|---|---|---|---|---|---|---|---|")
    halves: dict[str, Any] = {"n_splits": options.splits, "n_nulls": 5, "random_state": 0}
    for mesh, (maps, given) in _on_meshes(cohort, folder).items():
        plain = ico.CorticalFactorization(10).fit(maps)
        agreed = ico.choose_n_components(maps, [10], **halves).table["agreement"][0]
        for name, by in given.items():
            model = ico.CorticalFactorization(10, weights=by).fit(maps)
            assert model.weights_ is not None
            match = ico.match_components(model, plain)
            loads = np.mean(
                [
                    np.corrcoef(model.loadings_[:, a], plain.loadings_[:, b])[0, 1]
                    for a, b in zip(match.a, match.b, strict=True)
                ]
            )
            shares = [[_unexplained(one, maps, w) for one in (plain, model)] for w in (None, model.weights_)]
            ours = ico.choose_n_components(maps, [10], weights=by, **halves).table["agreement"][0]
            used = model.weights_[model.weights_ > 0]
            cells = [mesh, f"{name} ({used.std():.2f})", f"{match.mean:.3f}", f"{loads:.3f}"]
            cells += [f"{a:.4f} → {b:.4f}" for a, b in shares]
            print(f"| {' | '.join([*cells, f'{agreed:.3f}', f'{ours:.3f}'])} |", flush=True)


def _unexplained(model: ico.CorticalFactorization, cohort: ico.Cohort, weights: np.ndarray | None) -> float:
    """Error over variance, with every site counted alike or by its weight, whatever the fit did."""
    used = slice(None) if model.mask_ is None else model.mask_
    X, w = cohort.X[:, used].astype(np.float64), np.float64(1) if weights is None else weights[used]
    fitted = model.inverse_transform(model.loadings_)[:, used]
    return float((w * (X - fitted) ** 2).sum() / (w * (X - X.mean(axis=0)) ** 2).sum())


def _on_meshes(cohort: ico.Cohort, folder: Any) -> dict[str, tuple[ico.Cohort, dict[str, Any]]]:
    """Mesh → the cohort on it, and the weights to try."""
    group = {"group's average": str(folder)}
    found: dict[str, tuple[ico.Cohort, dict[str, Any]]] = {
        "fsaverage5": (cohort, {"fsaverage's midthickness": "area", **group})
    }
    cortex = np.ones(cohort.sites.n, dtype=bool) if cohort.mask is None else np.asarray(cohort.mask)
    ico6, one = ico.Sites.icosphere(6), ico.Sites.named("fsaverage5")
    targets = {"fs_LR 32k": ("fsLR32k", {"sphere": "area", **group}), "CIVET 41k": (ico6, {"sphere": "area"})}
    for name, (mesh, given) in targets.items():
        X, covered = [], []
        for half, side in enumerate(("left", "right")):
            old, new = find_meshes(folder, side, ("fsaverage5", "fsLR32k"), areas=False)
            own = cohort.sites.hemisphere == half
            source: Any = (one.coordinates, one.triangles) if mesh is ico6 else old.sphere
            target: Any = (ico6.coordinates, ico6.triangles) if mesh is ico6 else new.sphere
            resampler = Resampler(source, target, "barycentric", roi=cortex[own].astype(np.float64))
            X.append(resampler(cohort.X[:, own]))
            covered.append(resampler.coverage > 0.5)
        sites = mesh if isinstance(mesh, str) else ico.Sites.both(ico6, ico6)
        there = ico.Cohort.from_array(np.hstack(X), mesh=sites, hemi="both", mask=np.concatenate(covered))
        found[name] = there, given
    return found


def main() -> None:
    only = {"help": "print only the tables whose title holds this"}
    repeats = {"--repeats": number(5)}
    choices = {"--only": {"choices": list(PARTS)}}
    run_task(
        __doc__,
        {
            tables: {**repeats, "--only": only},
            claims: choices,
            speed: repeats,
            weights: {"--splits": number(10)},
            penalty: {},
            ends: {"--seeds": number(16)},
            sweeps: {},
        },
    )


if __name__ == "__main__":
    main()
