"""(r) Reproducibility: do two groups of people give the same components, and third people the same loadings?

People are split into two groups that are fitted and third people who are only projected. Every agreement stands beside
that of a null cohort, in which every person's deviation from the mean map is turned on the sphere by a rotation of its
own: what groups of such a cohort agree on comes from mean map, variances and smoothness alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from icofactor.assessment.selection.agreement import adjusted_rand
from icofactor.cohort.simulate import simulate_cohort
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._multistart import multistart
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.operators import border_ratio, mesh_edges
from icofactor.sphere.rotations import SiteSpinner
from icofactor.sphere.sites import Sites
from icofactor_lab.bench.settings import Bench, Sizes
from icofactor_lab.common.data import parcel_arrays, simulate_maps, thickness_cohort, thickness_is_there
from icofactor_lab.common.opnmf import opnmf
from icofactor_lab.common.outcome import Outcome, Plate, Row, Table, Target, at_least, at_most
from icofactor_lab.common.plotting import BLACK, BLUE, GREEN, GREY, ORANGE, OURS, PINK, SKY, panels

LEVEL = 2
"""Of the faces whose borders are looked for in the maps."""
AGREEMENTS = ("loadings", "global mean out", "maps", "ARI")
_COLOURS = (OURS, ORANGE, BLUE, GREEN, BLACK, SKY, GREY, PINK)
_GOALS = {6: (0.95, 0.65, 0.485), 10: (0.92, 0.62, 0.44), 16: (0.90, 0.57, 0.40)}
"""By number of components, what parts of real thickness must show: loadings, maps, unexplained."""


# ------------------------------------------------------------------ data


@dataclass(frozen=True, eq=False)
class Material:
    """People's maps.

    Attributes
    ----------
    X : people × sites, values ≥ 0
    mesh : where all sites of the mesh lie; None for parcels, which lie nowhere
    used : which sites of the mesh X holds
    """

    name: str
    X: np.ndarray
    mesh: Sites | None = None
    used: np.ndarray | None = None

    @cached_property
    def sites(self) -> Sites | None:
        return None if self.mesh is None or self.used is None else self.mesh.subset(self.used)

    @cached_property
    def edges(self) -> np.ndarray:
        """Edges of the mesh between sites of X."""
        assert self.mesh is not None and self.mesh.triangles is not None and self.used is not None
        one = mesh_edges(self.mesh.triangles)
        half = self.mesh.n // len(self.mesh.frames)
        edges = np.concatenate([one + i * half for i in range(len(self.mesh.frames))])
        place = np.cumsum(self.used) - 1
        return np.asarray(place[edges[self.used[edges].all(axis=1)]])

    def turned(self, seed: int) -> Material:
        """A null cohort: deviations in units of each site's own, every person's turned by another rotation."""
        assert self.sites is not None
        rng, spinner = np.random.default_rng([seed, 1]), SiteSpinner(self.sites)
        middle, spread = self.X.mean(axis=0), self.X.std(axis=0)
        deviation = np.divide(self.X - middle, spread, out=np.zeros_like(self.X), where=spread > 0)
        X = np.stack([middle + own[spinner.draw(rng)] * spread for own in deviation])
        return replace(self, X=np.maximum(X, 0.0).astype(self.X.dtype))


def thickness_material(sizes: Sizes) -> Material:
    """Real thickness on the cortex of both hemispheres, or a simulated cohort."""
    real = sizes.real and thickness_is_there()
    n_people = sum(sizes.groups)
    if real:
        cohort = thickness_cohort()
        name = "real thickness (mm)"
    else:
        cohort = simulate_cohort(n_people, max(sizes.ranks), hemisphere="both", mesh=sizes.cohort_mesh)
        name = "SIMULATED thickness"
    used = np.ones(cohort.sites.n, dtype=bool) if cohort.mask is None else np.asarray(cohort.mask)
    return Material(name, np.ascontiguousarray(cohort.X[:n_people, used]), cohort.sites, used)


def parcel_materials(sizes: Sizes) -> list[Material]:
    """NSPN's measures on parcels where they are there; something like them in quick runs."""
    if not sizes.real:
        points = np.random.default_rng(0).normal(size=(60, 3))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        return [Material("SIMULATED parcels", simulate_maps(points, sum(sizes.parcel_groups), 4))]
    return [Material(name, X) for name, X in parcel_arrays().items()]


# ------------------------------------------------------------------ methods


@dataclass(frozen=True, eq=False)
class Model:
    """A fit.

    Attributes
    ----------
    maps : components × sites
    loadings : people × sites → people × components
    rebuilt : people × sites → the same as the model sees it, in the data's units
    signed : whether a component may as well be its negative
    updates : made, where that is to be said
    note : what else is to be said of it
    """

    maps: np.ndarray
    loadings: Callable[[np.ndarray], np.ndarray]
    rebuilt: Callable[[np.ndarray], np.ndarray]
    signed: bool = False
    updates: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Limit:
    """What stops opNMF before its own rule does."""

    seconds: float
    updates: int


Way = Callable[[Material, np.ndarray, int, Limit], Model]
"""way(material, X of one group, number of components, limit)."""


def _ours(method: str, center: str) -> Way:
    def way(data: Material, X: np.ndarray, n_components: int, limit: Limit) -> Model:
        model = CorticalFactorization(n_components, method=method, center=center, mesh=data.sites, random_state=0)
        model.fit(X)
        return Model(model.components_, model.transform, lambda new: model.inverse_transform(model.transform(new)))

    return way


def _parts_of_parcels(center: str) -> Way:
    """Parts of plain arrays: every parcel is a column of its own, so that there is nothing to lift."""

    def way(data: Material, X: np.ndarray, n_components: int, limit: Limit) -> Model:
        mean = X.mean(axis=0, dtype=np.float64)
        spread = X.std(axis=0, ddof=1, dtype=np.float64) if center == "zscore" else np.ones(X.shape[1])
        settings = {"n_starts": 50, "n_iter": 3000, "tol": 1e-5, "random_state": 0}  # as the estimator's
        B = multistart(one_column_each((X - mean) / spread), "parts", n_components, **settings).B  # type: ignore[arg-type]
        loadings = lambda new: (new - mean) / spread @ B
        return Model(B.T, loadings, lambda new: mean + loadings(new) @ B.T * spread)

    return way


def one_column_each(X: np.ndarray) -> Statistics:
    """Statistics of people × parcels in which every parcel is a column."""
    n = X.shape[1]
    faces = np.stack([np.zeros(n, dtype=np.int64), np.arange(n)], axis=1)
    energy = np.square(X).sum(axis=0)
    K = sp.eye_array(n, format="csr")
    return Statistics(K, X, float(energy.sum()), energy, np.ones(n), n, X.sum(axis=1, keepdims=True), faces)


def _pca(data: Material, X: np.ndarray, n_components: int, limit: Limit) -> Model:
    from sklearn.decomposition import PCA

    model = PCA(n_components, random_state=0).fit(X)
    return Model(
        model.components_, model.transform, lambda new: model.inverse_transform(model.transform(new)), signed=True
    )


def _sklearn_nmf(data: Material, X: np.ndarray, n_components: int, limit: Limit) -> Model:
    from sklearn.decomposition import NMF

    model = NMF(n_components, random_state=0).fit(X)
    return Model(model.components_, model.transform, lambda new: model.transform(new) @ model.components_)


def _published(data: Material, X: np.ndarray, n_components: int, limit: Limit) -> Model:
    found = opnmf(X, n_components, limit.seconds, limit.updates)
    W = found.W
    note = "" if found.converged else "stopped before it converged"
    return Model(W.T, lambda new: new @ W, lambda new: new @ W @ W.T, updates=found.n_iter, note=note)


COMMON: dict[str, Way] = {"PCA": _pca, "scikit-learn NMF": _sklearn_nmf, "opNMF": _published}
ON_THE_SPHERE: dict[str, Way] = {
    "parts": _ours("parts", "mean"),
    "parts, z-scores": _ours("parts", "zscore"),
    "CD-PNNMF": _ours("CD-PNNMF", "none"),
    "LE-PPNMF": _ours("LE-PPNMF", "none"),
    **COMMON,
}
ON_PARCELS: dict[str, Way] = {
    "parts": _parts_of_parcels("mean"),
    "parts, z-scores": _parts_of_parcels("zscore"),
    **COMMON,
}


# ------------------------------------------------------------------ measures


def paired(a: np.ndarray, b: np.ndarray, signed: bool = False) -> float:
    """Mean correlation of columns of a and b over the best pairs; of its size where signs mean nothing."""
    correlation = _standardised(a).T @ _standardised(b)
    if signed:
        correlation = np.abs(correlation)
    return float(correlation[linear_sum_assignment(-correlation)].mean())


def _standardised(a: np.ndarray) -> np.ndarray:
    a = a - a.mean(axis=0)
    length = np.linalg.norm(a, axis=0)
    return np.asarray(a / np.where(length > 0, length, 1.0))


def without_global(loadings: np.ndarray, X: np.ndarray) -> np.ndarray:
    """What a regression on each person's mean over all sites leaves of the loadings."""
    design = np.stack([np.ones(len(X)), X.mean(axis=1, dtype=np.float64)], axis=1)
    return np.asarray(loadings - design @ np.linalg.lstsq(design, loadings, rcond=None)[0])


def agreements(a: Model, b: Model, third: np.ndarray) -> dict[str, float]:
    """How far two models agree, in the ways of `AGREEMENTS`."""
    of_a, of_b = (np.asarray(model.loadings(third), dtype=np.float64) for model in (a, b))
    winners = [np.abs(model.maps).argmax(axis=0) for model in (a, b)]
    return {
        "loadings": paired(of_a, of_b, a.signed),
        "global mean out": paired(without_global(of_a, third), without_global(of_b, third), a.signed),
        "maps": paired(a.maps.T, b.maps.T, a.signed),
        "ARI": adjusted_rand(*winners),
    }


def left_over(model: Model, X: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    """Squared error of X under the model, and its squares about a mean map, both in the data's units."""
    return float(np.square(X - model.rebuilt(X)).sum(dtype=np.float64)), float(
        np.square(X - mean).sum(dtype=np.float64)
    )


def one_split(data: Material, way: Way, n_components: int, groups: Sequence[np.ndarray], limit: Limit) -> Row:
    """Everything that one split of one cohort shows of one method."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what did not converge is seen in the numbers
        return _one_split(data, way, n_components, groups, limit)


def _one_split(data: Material, way: Way, n_components: int, groups: Sequence[np.ndarray], limit: Limit) -> Row:
    first, second, third = (data.X[group] for group in groups)
    models, seconds = [], []
    for X in (first, second):
        begin = time.perf_counter()
        models.append(way(data, X, n_components, limit))
        seconds.append(time.perf_counter() - begin)
    own = np.sum([left_over(m, X, X.mean(axis=0)) for m, X in zip(models, (first, second), strict=True)], axis=0)
    new = np.sum([left_over(m, third, X.mean(axis=0)) for m, X in zip(models, (first, second), strict=True)], axis=0)
    row: Row = dict(agreements(models[0], models[1], third))
    row |= {"unexplained": own[0] / own[1], "third people explained": 1 - new[0] / new[1]}
    if data.sites is not None:
        face = data.sites.face_at(min(LEVEL, data.sites.max_level))
        row["border ratio"] = float(np.mean([border_ratio(m.maps, data.edges, face) for m in models]))
    if models[0].updates is not None:
        row["updates"] = float(np.mean([model.updates for model in models]))
    note = next((model.note for model in models if model.note), "")
    return {**row, "seconds": float(np.mean(seconds)), "note": note}


def splits_of(n_people: int, groups: Sequence[int], n_splits: int) -> Iterator[list[np.ndarray]]:
    """Disjoint groups of people, the same in every run."""
    for split in range(n_splits):
        order = np.random.default_rng(split).permutation(n_people)
        yield np.split(order, np.cumsum(groups))[: len(groups)]


# ------------------------------------------------------------------ the experiment


def run(bench: Bench) -> Outcome:
    """Thickness on the sphere, then measures on parcels."""
    sizes, outcome = bench.sizes, Outcome("r", "Reproducibility")
    limit, on_parcels = (Limit(bench.budget, updates) for updates in sizes.opnmf_updates)
    data = thickness_material(sizes)
    outcome.notes.append(
        f"Two groups are fitted, of {sizes.groups[0]} and {sizes.groups[1]} people; {sizes.groups[2]} third people get "
        f"loadings from both fits. Medians over splits, of which there are {sizes.splits}. Loadings and maps: mean "
        "correlation over the best pairs, of its size for PCA, whose signs mean nothing; global mean out: of what a "
        "regression on each person's mean over all sites leaves of the loadings; ARI: adjusted Rand index of the "
        "winner-takes-all maps. Each stands beside its null: the same for a cohort in which every person's deviation "
        "is turned on the sphere by a rotation of its own. Unexplained: of both fitted groups, as a part of their "
        "variance in the data's units; third people explained: of their variance about the fitted people's mean map. "
        f"Border ratio: mean step of maps across borders of the faces of level {LEVEL}, over that inside. Seconds: of "
        f"one fit. opNMF stops by its own rule, or after {limit.updates} updates ({on_parcels.updates} on parcels) or "
        f"{bench.budget:g} s."
    )
    every: list[Row] = []
    for split, groups in enumerate(splits_of(len(data.X), sizes.groups, sizes.splits)):
        null = data.turned(split)
        for n_components in sizes.ranks:
            for name, way in ON_THE_SPHERE.items():
                row = one_split(data, way, n_components, groups, limit)
                turned = one_split(null, way, n_components, groups, limit)
                row |= {f"{what}, null": turned[what] for what in AGREEMENTS}
                every.append({"method": name, "components": n_components, "split": split, **row})
            bench.tell(f"(r) {data.name}: split {split + 1} of {sizes.splits}, {n_components} components")
    title = f"{data.name}, {data.X.shape[0]} people × {data.X.shape[1]} sites"
    medians = medians_of(every, ("method", "components"))
    outcome.tables += [
        Table(title, medians, name="reproducibility"),
        Table("Every split", every, name="reproducibility_splits"),
    ]
    if not data.name.startswith("SIMULATED"):
        outcome.targets += targets_of(medians)
    parcels = [row for one in parcel_materials(sizes) for row in _on_parcels(one, bench, on_parcels)]
    if parcels:
        title = f"Parcels as plain arrays, groups of {', '.join(map(str, sizes.parcel_groups))}"
        table = medians_of(parcels, ("measure", "method", "components"))
        outcome.tables.append(Table(title, table, name="reproducibility_parcels"))
    else:
        outcome.notes.append("Measures on parcels: not run, their file is not there.")
    outcome.plates = [Plate("reproducibility", partial(_drawn, medians))]
    return outcome


def _on_parcels(data: Material, bench: Bench, limit: Limit) -> Iterator[Row]:
    sizes = bench.sizes
    for split, groups in enumerate(splits_of(len(data.X), sizes.parcel_groups, sizes.splits)):
        for n_components in sizes.ranks:
            for name, way in ON_PARCELS.items():
                row = one_split(data, way, n_components, groups, limit)
                yield {"measure": data.name, "method": name, "components": n_components, "split": split, **row}
    bench.tell(f"(r) {data.name}, parcels")


def medians_of(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """Medians over splits; of notes the first that says anything. An agreement and its null stand side by side."""
    found: list[Row] = []
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in rows):
        mine = [row for row in rows if tuple(row[k] for k in keys) == key]
        columns = [c for what in AGREEMENTS for c in (what, f"{what}, null") if c in mine[0]]
        columns += [c for c in mine[0] if c not in (*columns, *keys, "split", "note")]
        one = dict(zip(keys, key, strict=True)) | {c: round(float(np.median([r[c] for r in mine])), 4) for c in columns}
        found.append({**one, "note": next((row["note"] for row in mine if row["note"]), "")})
    return found


def targets_of(medians: Sequence[Row]) -> list[Target]:
    """What parts of real thickness must show."""
    mine = {row["components"]: row for row in medians if row["method"] == "parts"}
    targets = []
    for n_components, (loadings, maps, unexplained) in _GOALS.items():
        if n_components in mine:
            row, what = mine[n_components], f"parts, {n_components} components"
            targets += [
                at_least(f"{what}: loadings of third people", row["loadings"], loadings),
                at_least(f"{what}: maps", row["maps"], maps),
                at_most(f"{what}: unexplained", row["unexplained"], unexplained),
            ]
    if mine:
        what = "parts: loadings of third people, global mean out, mean over numbers of components"
        targets.append(at_least(what, float(np.mean([row["global mean out"] for row in mine.values()])), 0.76))
        targets.append(at_most("parts: border ratio, the worst", max(r["border ratio"] for r in mine.values()), 1.2))
    return targets


def _drawn(rows: list[Row]) -> Any:
    """A panel per agreement: lines over the number of components, a colour per method, nulls dashed."""
    figure, axes = panels(1, len(AGREEMENTS), (12.0, 3.6), sharex=True)
    names = list(dict.fromkeys(row["method"] for row in rows))
    for ax, what in zip(axes.flat, AGREEMENTS, strict=True):
        for name, colour in zip(names, _COLOURS, strict=False):
            mine = [row for row in rows if row["method"] == name]
            x = [row["components"] for row in mine]
            ax.plot(x, [row[what] for row in mine], color=colour, marker="o", ms=4, lw=1.4, label=name)
            ax.plot(x, [row[f"{what}, null"] for row in mine], color=colour, lw=0.8, ls=":")
        title = {"loadings": "loadings of third people", "global mean out": "the same, global mean out"}
        ax.set_title(title.get(what, what), fontsize=9, loc="left")
        ax.set_ylim(-0.05, 1.02)
        ax.set_xticks(sorted({row["components"] for row in rows}))
        ax.set_xlabel("components", fontsize=8)
    axes.flat[0].set_ylabel("agreement (dotted: rotated null)", fontsize=8)
    lines = axes.flat[0].get_legend_handles_labels()
    figure.legend(*lines, fontsize=7.5, frameon=False, loc="outside lower center", ncols=len(names))
    return figure
