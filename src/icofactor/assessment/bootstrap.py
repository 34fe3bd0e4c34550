"""Standard errors and stability of the components of a model, by bootstrap resampling of the
subjects.

Each resample draws as many subjects as there are, with replacement, and fits them on the faces of
the model from new random starts. Rows that belong together, such as scans of a person, are drawn
together. Components are matched to those of the model. Starts from the solution of the model would
be faster, but would stay near it and give standard errors that are too small.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.checks import check_parameters
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.measures import Arrangement
from icofactor.cohort.people import People, RowGroups, choose_scans
from icofactor.errors import ArgumentError, Phrase
from icofactor.estimator.inputs import read_input
from icofactor.factorization._lift import basis_of, full_basis, loadings
from icofactor.factorization._multistart import multistart
from icofactor.factorization.matching import match_components, reordered
from icofactor.factorization.methods import method_named
from icofactor.factorization.scaling import scale_of
from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.statistics import Statistics
from icofactor.io.archive import Arrays
from icofactor.io.gifti import write_maps
from icofactor.io.publish import Publication
from icofactor.io.tables import numbered, sidecar, write_table
from icofactor.maps.maps import Maps
from icofactor.maps.workers import in_order, one_blas_thread
from icofactor.preprocessing.adjusted import as_the_fit
from icofactor.preprocessing.centering import measured_centering
from icofactor.preprocessing.confounds import Confounds, unadjusted
from icofactor.progress import Stages
from icofactor.sphere.names import OWN, hemispheres, map_file, mesh_name_of

CHUNK = 10
"""Resamples of one task, whose sums are added up; whatever the machine, so that bits stay."""
MOST_STARTS = 10
"""A resample has as many starts as the model had, but no more than these: the worse half is dropped
on the way.
"""
MOST_UPDATES = 1000
_ERRORS = "componentsse.shape.gii"
REGION_ERRORS = "components_se.tsv"
"""Standard errors of components on parcels: one row per region."""
_COLUMNS = {
    "component": "Number of the component",
    "stability": "Mean correlation of the map with its partner in fits to resampled people",
    "stability_5th_percentile": "5th percentile of stability",
    "relative_standard_error": "Standard error of the map over resamples, relative to the size of the map",
    "n_resamples": "Resamples",
}


@dataclass(frozen=True, eq=False)
class Bootstrap:
    """Spread over resamples of the subjects, the result of `bootstrap`.

    Attributes
    ----------
    component_se : array of shape (n_components, n_sites)
        Standard error of each component at each site; 0 if masked.
    loading_se : array of shape (n_subjects, n_components)
        Standard error of the loadings that comes from the components.
    similarity : array of shape (n_resamples, n_components)
        Correlation of each map with its partner in each resample.

    Examples
    --------
    >>> import numpy as np
    >>> Bootstrap(np.zeros((2, 9)), np.zeros((5, 2)), np.array([[1.0, 0.5], [0.8, 0.7]])).stability
    array([0.9, 0.6])
    """

    component_se: np.ndarray
    loading_se: np.ndarray
    similarity: np.ndarray

    @property
    def stability(self) -> np.ndarray:
        """Mean correlation of each map with its partners in resamples of the same people."""
        return np.asarray(self.similarity.mean(axis=0))

    def save(
        self,
        folder: str | Path | Publication,
        model: Any,
        subjects: Sequence[str] | People,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write stability.tsv, loadings_se.tsv and maps of standard errors (components_se.tsv for
        parcels).
        """
        rows = (
            subjects if isinstance(subjects, People) else People(tuple(subjects), tuple(subjects))
        )
        place = (
            folder
            if isinstance(folder, Publication)
            else bootstrap_place(Path(folder), model, overwrite)
        )
        n = len(self.component_se)
        names = numbered("component", n)
        table = {
            "component": np.arange(1, n + 1),
            "stability": self.stability,
            "stability_5th_percentile": np.quantile(self.similarity, 0.05, axis=0),
            "relative_standard_error": relative_error(self.component_se, model),
            "n_resamples": np.full(n, len(self.similarity)),
        }
        loadings = {**rows.columns, **dict(zip(names, self.loading_se.T, strict=True))}
        tables, maps = _files(model)
        with place.filled() as new:
            write_table(new / tables[0], table, _COLUMNS)
            of_loading = {
                name: f"Standard error of the loading on {name} that comes from the maps"
                for name in names
            }
            write_table(new / tables[1], loadings, of_loading)
            if len(tables) > 2:
                errors = dict(zip(names, self.component_se, strict=True))
                told = {
                    "region": "Region of the atlas",
                    **{name: f"Standard error of {name}" for name in names},
                }
                regions, n = list(model.sites_.of_measure().regions.names), model.sites_.n_measures
                whose = (
                    {}
                    if n == 1
                    else {"measure": np.repeat(model.measures_.names, len(regions)).tolist()}
                )
                told |= {
                    "measure": "Measure of the map; its standard errors are in the units of the fitted data"
                }
                write_table(new / tables[2], {"region": regions * n, **whose, **errors}, told)
            halves = np.split(self.component_se / error_unit(model), max(1, len(maps)), axis=1)
            for (name, side), half in zip(maps.items(), halves, strict=False):
                write_maps(new / name, half, side, [f"{name} standard error" for name in names])
        return [place.path / name for name in (*tables, *_beside(tables), *maps)]


def relative_error(component_se: np.ndarray, model: Any) -> np.ndarray:
    """(n_components,) size of each map's standard errors relative to that of the map, over sites by
    their weights.
    """
    w = model.sites_.weigh(np.ones(component_se.shape[1]))
    errors, size = (np.sqrt(one**2 @ w) for one in (component_se, model.components_))
    return np.asarray(errors / np.where(size > 0, size, 1.0))


def bootstrap_place(folder: Path, model: Any, overwrite: bool = False, **more: Any) -> Publication:
    """The folder that `Bootstrap.save` writes to, checked; maps of an earlier one's other
    hemisphere leave.
    """
    tables, maps = _files(model)
    leaving = lambda listed: [name for name in listed if name.endswith((_ERRORS, REGION_ERRORS))]
    return Publication(
        folder, overwrite, names=[*tables, *_beside(tables), *maps], leaving=leaving, **more
    )


def _beside(tables: Sequence[str]) -> list[str]:
    return [sidecar(name).name for name in tables]


def _files(model: Any) -> tuple[tuple[str, ...], dict[str, str]]:
    """Tables, and map → hemisphere: GIFTI maps lie on the vertices of a known hemisphere."""
    written = model.sites_.on == "vertices" and model.hemi_ is not None
    of_regions = () if model.sites_.regions is None else (REGION_ERRORS,)
    return ("stability.tsv", "loadings_se.tsv", *of_regions), error_files(model) if written else {}


def error_files(model: Any) -> dict[str, str]:
    """Files of standard errors of the maps → hemisphere, in the order of the sites: of every
    measure that has maps.
    """
    measures, mesh = getattr(model, "measures_", None), mesh_name_of(model.sites_)
    about = (OWN,) if measures is None or measures.share == "maps" else measures.names
    return {
        map_file(mesh, _ERRORS, side, desc): side
        for desc in about
        for side in hemispheres(model.hemi_ or "left")
    }


def error_unit(model: Any) -> Any:
    """What the maps of each site's measure were multiplied by."""
    measures = getattr(model, "measures_", None)
    return (
        1.0
        if measures is None or measures.share == "maps"
        else measures.factor[model.sites_.measure]
    )


def check_resamples(n_resamples: Any) -> None:
    """Refuse a number of resamples that has no spread."""
    check_parameters(n_resamples=n_resamples)


def bootstrap(
    model: Any,
    cohort: Any,
    n_resamples: int = 100,
    random_state: int = 0,
    *,
    fit_on: str | None = None,
    groups: Any = None,
    order: str | None = None,
    verbose: bool = False,
) -> Bootstrap:
    """Compute standard errors of maps and loadings, and the stability of each component.

    Parameters
    ----------
    model : CorticalFactorization
        A fitted model.
    cohort : Cohort or array
        The data that it was fitted to.
    n_resamples : int, default=100
        Number of resamples, at least 2. Each takes two passes over the maps, and more if
        covariates, scanners or standard deviations are estimated again.
    random_state : int, default=0
        Seed.
    fit_on, order : str, optional
        As in the fit, if `cohort` also contains scans that were not fitted.
    groups : str or sequence, optional
        Column of the participants, or one label per row: rows that are drawn together. Default: the
        scans of a person.
    verbose : bool, default=False
        Whether to show progress.

    Returns
    -------
    Bootstrap

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, level=1, n_starts=2, random_state=0).fit(cohort)
    >>> found = ico.bootstrap.bootstrap(model, cohort, n_resamples=4)
    >>> found.component_se.shape, found.stability.shape
    ((3, 642), (3,))
    """
    check_resamples(n_resamples)
    work = _Resampling.of(model, cohort, int(random_state), fit_on, groups, order)
    firsts = range(0, int(n_resamples), CHUNK)
    parts: list[Arrays] = []
    with one_blas_thread(), warnings.catch_warnings(), Stages(verbose).stage("bootstrap") as show:
        warnings.simplefilter("ignore")  # what a fit warns of, the model's own has said
        chunk = lambda first: work.chunk(first, min(CHUNK, int(n_resamples) - first))
        for part in in_order(chunk, firsts):
            # sums are added up at once, so that memory does not grow with the number of resamples
            parts = [part if not parts else _joined(parts[0], part)]
            show(len(parts[0]["similarity"]) / n_resamples)
    total = parts[0]
    component_se = np.zeros(model.components_.shape)
    component_se[:, work.used] = _spread(total["maps"], total["maps_sq"], int(n_resamples))
    loading_se = _spread(total["loadings"], total["loadings_sq"], int(n_resamples))
    return Bootstrap(component_se, loading_se, total["similarity"])


def _joined(a: Arrays, b: Arrays) -> Arrays:
    """Two chunks as one: sums add up, similarities follow each other."""
    return {
        name: np.concatenate([a[name], b[name]]) if name == "similarity" else a[name] + b[name]
        for name in a
    }


def _spread(total: np.ndarray, squares: np.ndarray, n: int) -> np.ndarray:
    """Standard deviation over resamples from sums of differences and of their squares."""
    return np.asarray(np.sqrt(np.maximum(squares - total**2 / n, 0.0) / (n - 1)))


@dataclass(frozen=True, eq=False)
class _Resampling:
    """What all resamples share."""

    model: Any
    X: Maps
    stats: Statistics
    used: np.ndarray
    seed: int
    raw: Maps
    confounds: Confounds | None
    groups: RowGroups | None = None

    @classmethod
    def of(
        cls,
        model: Any,
        cohort: Any,
        seed: int,
        fit_on: str | None = None,
        groups: Any = None,
        order: str | None = None,
    ) -> _Resampling:
        if not hasattr(model, "components_"):
            raise ArgumentError("model", None, "The model is not fitted yet: call fit first")
        names = subject_names(cohort)
        n_rows = None if names is None else len(names)
        fitted_all = fit_on is None and n_rows == len(model.loadings_)
        n_rows = None if n_rows is not None else read_input(cohort, model.sites_)[0].n_subjects
        scans = choose_scans(
            cohort, "all" if fitted_all else fit_on, groups, order, seed, n_rows=n_rows
        )
        cohort = scans.of(cohort)
        data = as_the_fit(cohort, model.harmonization_, model.covariates_, measures=model.measures_)
        hemi = model.hemi_ if model.hemi_ != "both" else None
        X, _ = read_input(data, model.sites_, hemi)
        if X.n_subjects != len(model.loadings_):
            expected = (
                f"the cohort that the model was fitted to, of {len(model.loadings_)} subjects"
            )
            raise ArgumentError("cohort", Phrase(f"{X.n_subjects} subjects"), expected)
        mask = model.mask_
        used = np.arange(model.sites_.n) if mask is None else np.flatnonzero(mask)
        X = model.centering_.at(mask).applied(X.subset(sites=mask))
        _check_same_subjects(model, data)
        before, confounds = unadjusted(data)
        raw = X
        if confounds is not None or model.center_ == "zscore" or model.measures_ is not None:
            raw = read_input(before, model.sites_, hemi)[0].subset(sites=mask)
        return cls(model, X, model.refined_.stats, used, seed, raw, confounds, scans.groups)

    def chunk(self, first: int, n: int) -> Arrays:
        """Sums over `n` resamples of differences to the model, and of their squares."""
        maps, theirs = self.model.components_[:, self.used], self.model.loadings_
        total: Arrays = {name: np.zeros(maps.shape) for name in ("maps", "maps_sq")}
        total |= {name: np.zeros(theirs.shape) for name in ("loadings", "loadings_sq")}
        similarity = []
        for number in range(first, first + n):
            W, C, alike = self.resample(number)
            for name, change in (("maps", W - maps), ("loadings", C - theirs)):
                total[name] += change
                total[f"{name}_sq"] += change**2
            similarity.append(alike)
        return {**total, "similarity": np.stack(similarity)}

    def resample(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Maps, loadings of all subjects and similarities of one resample, in the model's order and
        scale.
        """
        model, solution = self.model, self.model.solution_
        scheme = method_named(solution.method).scheme
        draw, starts = np.random.SeedSequence(self.seed, spawn_key=(number,)).spawn(2)
        rng, n = np.random.default_rng(draw), self.stats.n_subjects
        who = rng.integers(n, size=n) if self.groups is None else self.groups.resample(rng)
        X, stats = self.drawn(who)
        best = multistart(
            stats,
            solution.method,
            solution.n_components,
            n_starts=min(model.starts_.n_starts, MOST_STARTS),
            n_iter=min(int(model.n_iter), MOST_UPDATES),
            tol=float(model.tol),
            halving=True,
            rules=solution.rules,
            penalty=solution.penalty,
            engine="cpu",
            random_state=starts,
        )
        weights = model.design_.sites.weights
        basis = basis_of(X, self._lifted(X.subset(who), best.B, best.C, scheme), weights)
        everyone = loadings(basis.WX, basis.WW, scheme, solution.penalty)
        if model.center_ != "none":
            # Deviations are those from the mean of the drawn subjects.
            member = model.centering_.membership(n)
            drawn_member = member[:, who]
            means = everyone[:, who] @ drawn_member.T / drawn_member.sum(axis=1)
            everyone = everyone - means @ member
        scale = scale_of(basis.W, everyone, scheme, weights)
        maps = (basis.W * scale).T
        match = match_components(model.components_[:, self.used], maps, weights)
        order = reordered(match, len(maps))
        return maps[order], (everyone.T / scale)[:, order], match.similarity

    def drawn(self, who: np.ndarray) -> tuple[Maps, Statistics]:
        """Everyone's maps as the drawn subjects say they are fitted, and the statistics of the
        drawn ones.

        What was taken out by regression, ComBat or z-scores is found in them anew, by further
        passes.
        """
        model = self.model
        if self.raw is self.X:
            # ‖X‖² is only a constant of the resample's problem: that of all subjects will do
            L = np.ascontiguousarray(np.asarray(self.stats.L)[who])
            stats = replace(self.stats, L=L, root_L=self.stats.root_L[who])
            centred = model.center_ != "none"
            return self.X, stats.deviations(
                self.stats.energy, self.stats.sq_norm
            ) if centred else stats
        X = self.raw
        sites, measures = model.design_.sites, model.measures_
        if self.confounds is not None:
            arrangement = Arrangement() if measures is None else measures.arrangement(sites)
            X = self.confounds.removed(X, who, arrangement)
        if model.center_ != "none" or measures is not None:
            # Rows of one measure after those of another, as in the cohort.
            ordered = who[
                np.argsort(
                    model.centering_.membership(X.n_subjects)[:, who].argmax(axis=0), kind="stable"
                )
            ]
            measured = measured_centering(
                measures, model.center_, X.subset(ordered), sites, check=False
            )
            X = measured.centering.applied(X)
        return X, Statistics.from_data(X.subset(who), model.design_)

    def _lifted(self, drawn: Maps, B: np.ndarray, C: np.ndarray, scheme: Scheme) -> np.ndarray:
        """The basis on every site, as the model's own was made."""
        model = self.model
        coarse = model.design_.matrix @ B
        if not model.lift:
            return np.asarray(coarse)
        design = model.design_
        mean = model.centering_.at(model.mask_).mean_left_in
        polish = model.polish if scheme.projective else 0
        return full_basis(
            drawn, design, self.stats, B, C, scheme, model.solution_.penalty, mean, polish
        ).W


def _check_same_subjects(model: Any, cohort: Any) -> None:
    """Refuse a cohort of other subjects, or the same ones in another order: their loadings tell
    them apart.
    """
    found, theirs = model.transform(cohort), model.loadings_
    other = np.flatnonzero(np.abs(found - theirs).max(axis=1) > 1e-3 * np.abs(theirs).max())
    if len(other):
        names = subject_names(cohort) or range(len(found))
        different = Phrase(
            f"{len(other)} of {len(found)} subjects different, the first of them {names[other[0]]}"
        )
        raise ArgumentError(
            "cohort", different, "the cohort that the model was fitted to, in the same order"
        )
