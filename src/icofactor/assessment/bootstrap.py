"""Standard errors and stability of the components of a model, by resampling the subjects.

Each resample draws as many subjects as there are, with replacement, and fits them on the faces of
the model from new random starts. Rows that belong together, such as scans of a person, are drawn
together. Components are matched to those of the model. Starts from the solution of the model would
be faster, but would stay near it and give standard errors that are too small.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.refit import as_fitted, check_fitted
from icofactor.checks import check_parameters
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.people import People, RowGroups, choose_scans
from icofactor.errors import ArgumentError
from icofactor.estimator.inputs import check_executor, read_input
from icofactor.factorization._lift import basis_of, full_basis, loadings
from icofactor.factorization._multistart import multistart
from icofactor.factorization._solve import Solution
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
from icofactor.preprocessing.confounds import Confounds, unadjusted
from icofactor.progress import Stages
from icofactor.sphere.names import OWN, hemispheres, map_file, mesh_name_of

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

# Resamples of one task, whose sums are added up: the same number on every machine gives the same
# bits.
CHUNK = 10

# A resample has as many starts as the model had, but no more than these; the worse half is dropped
# on the way.
MAX_STARTS = 10
MAX_UPDATES = 1000

# A cohort whose loadings differ by more than this, relative to the largest, is of other subjects.
_SAME_LOADINGS = 1e-3

# Standard errors of components on parcels: one row per region.
REGION_ERRORS = "components_se.tsv"

_ERRORS = "componentsse.shape.gii"
_STABILITY = "stability.tsv"
_LOADING_ERRORS = "loadings_se.tsv"
_COLUMNS = {
    "component": "Number of the component",
    "stability": "Mean correlation of the map with its partner in fits to resampled people",
    "stability_5th_percentile": "5th percentile of stability",
    "relative_standard_error": "Standard error of the map over resamples, relative to the size of "
    "the map",
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
        return self.similarity.mean(axis=0)

    def save(
        self,
        folder: str | Path | Publication,
        model: CorticalFactorization,
        subjects: Sequence[str] | People,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write stability.tsv, loadings_se.tsv and maps of standard errors.

        For parcels the maps are components_se.tsv.
        """
        if not isinstance(folder, Publication):
            folder = bootstrap_place(Path(folder), model, overwrite)
        tables = self._tables(model, subjects)
        maps = _maps_of(model)
        components = numbered("component", len(self.component_se))
        with folder.filled() as new:
            for name, (columns, about) in tables.items():
                write_table(new / name, columns, about)
            errors = self.component_se / error_unit(model)
            # GIFTI has a file per hemisphere.
            halves = np.split(errors, max(1, len(maps)), axis=1)
            for (name, side), half in zip(maps.items(), halves, strict=False):
                titles = [f"{component} standard error" for component in components]
                write_maps(new / name, half, side, titles)
        return [folder.path / name for name in _files(model)]

    def _tables(
        self,
        model: CorticalFactorization,
        subjects: Sequence[str] | People,
    ) -> dict[str, tuple[Mapping[str, Any], Mapping[str, str]]]:
        """Return the columns of every table that is saved, and their descriptions."""
        if not isinstance(subjects, People):
            subjects = People(tuple(subjects), tuple(subjects))
        n_components = len(self.component_se)
        components = numbered("component", n_components)
        stability = {
            "component": np.arange(1, n_components + 1),
            "stability": self.stability,
            "stability_5th_percentile": np.quantile(self.similarity, 0.05, axis=0),
            "relative_standard_error": relative_error(self.component_se, model),
            "n_resamples": np.full(n_components, len(self.similarity)),
        }
        of_loadings = {
            name: f"Standard error of the loading on {name} that comes from the maps"
            for name in components
        }
        columns = dict(zip(components, self.loading_se.T, strict=True))
        tables: dict[str, tuple[Mapping[str, Any], Mapping[str, str]]] = {
            _STABILITY: (stability, _COLUMNS),
            _LOADING_ERRORS: ({**subjects.columns, **columns}, of_loadings),
        }
        if model.sites_.regions is not None:
            regions = list(model.sites_.one_copy().regions.names)
            n_measures = model.sites_.n_copies
            rows: dict[str, Any] = {"region": regions * n_measures}
            if n_measures > 1:
                rows["measure"] = np.repeat(model.measures_.names, len(regions)).tolist()
            about = {
                "region": "Region of the atlas",
                "measure": "Measure of the map; its standard errors are in the units of the fitted "
                "data",
                **{name: f"Standard error of {name}" for name in components},
            }
            errors = dict(zip(components, self.component_se, strict=True))
            tables[REGION_ERRORS] = ({**rows, **errors}, about)
        return tables


def relative_error(
    component_se: np.ndarray,
    model: CorticalFactorization,
) -> np.ndarray:
    """Return (n_components,) sizes of the standard errors relative to those of the maps."""
    weights = model.sites_.weigh(np.ones(component_se.shape[1]))
    errors = np.sqrt(component_se**2 @ weights)
    size = np.sqrt(model.components_**2 @ weights)
    return errors / np.where(size > 0, size, 1.0)


def bootstrap_place(
    folder: Path,
    model: CorticalFactorization,
    overwrite: bool = False,
    **settings: Any,
) -> Publication:
    """Return the folder that `Bootstrap.save` writes to, checked.

    Earlier maps of the other hemisphere leave it.
    """

    def earlier_maps(names: Mapping[str, str]) -> list[str]:
        return [name for name in names if name.endswith((_ERRORS, REGION_ERRORS))]

    return Publication(folder, overwrite, names=_files(model), leaving=earlier_maps, **settings)


def _files(model: CorticalFactorization) -> list[str]:
    """Return the files that `Bootstrap.save` writes: tables, their descriptions, maps."""
    tables = [_STABILITY, _LOADING_ERRORS]
    if model.sites_.regions is not None:
        tables.append(REGION_ERRORS)
    return [*tables, *(sidecar(name).name for name in tables), *_maps_of(model)]


def _maps_of(model: CorticalFactorization) -> dict[str, str]:
    """Return the maps that are saved: GIFTI maps are on the vertices of a known hemisphere."""
    if model.sites_.on != "vertices" or model.hemi_ is None:
        return {}
    return error_files(model)


def error_files(model: CorticalFactorization) -> dict[str, str]:
    """Return the files of standard errors of maps → hemisphere, in the order of the sites."""
    names = (OWN,)
    if _measures_with_maps(model) is not None:
        names = _measures_with_maps(model).names
    mesh = mesh_name_of(model.sites_)
    return {
        map_file(mesh, _ERRORS, side, name): side
        for name in names
        for side in hemispheres(model.hemi_ or "left")
    }


def error_unit(model: CorticalFactorization) -> Any:
    """Return what the maps of each site's measure were multiplied by."""
    measures = _measures_with_maps(model)
    return 1.0 if measures is None else measures.factor[model.sites_.copy]


def _measures_with_maps(model: CorticalFactorization) -> Any:
    """Return the measures of a model if each has maps of its own, else None."""
    measures = getattr(model, "measures_", None)
    return None if measures is None or measures.share == "maps" else measures


def check_resamples(n_resamples: int) -> None:
    """Refuse a number of resamples that has no spread."""
    check_parameters(n_resamples=n_resamples)


def bootstrap(
    model: CorticalFactorization,
    cohort: Any,
    n_resamples: int = 100,
    random_state: int = 0,
    *,
    fit_on: str | None = None,
    groups: str | Sequence[object] | None = None,
    order: str | None = None,
    executor: Executor | None = None,
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
    executor : concurrent.futures.Executor, optional
        Where passes over the maps run, as in `CorticalFactorization.fit`.
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
    >>> spread = ico.bootstrap.bootstrap(model, cohort, n_resamples=4)
    >>> spread.component_se.shape, spread.stability.shape
    ((3, 642), (3,))
    """
    check_resamples(n_resamples)
    check_executor(executor)
    seed = int(random_state)
    resampling = _Resampling.of(model, cohort, seed, fit_on, groups, order, executor)
    total: Arrays = {}
    similarity: list[np.ndarray] = []

    def chunk(first: int) -> Arrays:
        return resampling.chunk(range(first, min(first + CHUNK, n_resamples)))

    with one_blas_thread(), warnings.catch_warnings(), Stages(verbose).stage("bootstrap") as show:
        # The fit of the model has warned of the same data already.
        warnings.simplefilter("ignore")
        for sums in in_order(chunk, range(0, n_resamples, CHUNK)):
            # Sums are added up at once, so that memory does not grow with the number of resamples.
            similarity.append(sums.pop("similarity"))
            total = {name: values + total.get(name, 0.0) for name, values in sums.items()}
            show(sum(map(len, similarity)) / n_resamples)
    component_se = np.zeros(model.components_.shape)
    component_se[:, resampling.used] = _spread(total["maps"], total["maps_sq"], n_resamples)
    loading_se = _spread(total["loadings"], total["loadings_sq"], n_resamples)
    return Bootstrap(component_se, loading_se, np.concatenate(similarity))


def _spread(
    total: np.ndarray,
    squares: np.ndarray,
    n: int,
) -> np.ndarray:
    """Return the standard deviation over resamples, from sums of differences and their squares."""
    return np.sqrt(np.maximum(squares - total**2 / n, 0.0) / (n - 1))


@dataclass(frozen=True, eq=False)
class _Resampling:
    """What all resamples share.

    Attributes
    ----------
    X : the maps as the model fitted them, at the sites in use
    stats : of the refined design, of X before its mean is taken out
    used : numbers of the sites in use
    raw : the maps before everything that is estimated in the subjects; X itself if that is nothing
        but the mean map
    """

    model: CorticalFactorization
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
        model: CorticalFactorization,
        cohort: Any,
        seed: int,
        fit_on: str | None = None,
        groups: str | Sequence[object] | None = None,
        order: str | None = None,
        executor: Executor | None = None,
    ) -> _Resampling:
        check_fitted("model", model)
        names = subject_names(cohort)
        n_rows = None
        if names is None:
            n_rows = read_input(cohort, model.sites_)[0].n_subjects
        # A cohort with further scans needs the choice that the fit made.
        elif fit_on is None and len(names) == len(model.loadings_):
            # These are the fitted scans already.
            fit_on = "all"
        scans = choose_scans(cohort, fit_on, groups, order, seed, n_rows=n_rows)
        cohort = scans.of(cohort)
        data = as_the_fit(cohort, model.harmonization_, model.covariates_, measures=model.measures_)
        hemi = model.hemi_ if model.hemi_ != "both" else None

        def read(source: Any) -> Maps:
            maps, _ = read_input(source, model.sites_, hemi)
            return replace(maps, executor=executor).subset(sites=model.mask_)

        maps = read(data)
        _check_same_subjects(model, data, maps.n_subjects)
        X = model.centering_.at(model.mask_).applied(maps)
        before, confounds = unadjusted(data)
        raw = X
        if confounds is not None or model.center_ == "zscore" or model.measures_ is not None:
            raw = read(before)
        used = np.arange(model.sites_.n)
        if model.mask_ is not None:
            used = np.flatnonzero(model.mask_)
        return cls(model, X, model.refined_.stats, used, seed, raw, confounds, scans.groups)

    def chunk(self, numbers: Sequence[int]) -> Arrays:
        """Return sums over resamples of differences to the model, and of their squares."""
        fitted = {
            "maps": self.model.components_[:, self.used],
            "loadings": self.model.loadings_,
        }
        total: Arrays = {}
        similarity = []
        for number in numbers:
            maps, scores, correlations = self.resample(number)
            for name, values in (("maps", maps), ("loadings", scores)):
                # Differences to the model, which are small: sums of squares of the maps would
                # lose digits.
                change = values - fitted[name]
                total[name] = change + total.get(name, 0.0)
                total[f"{name}_sq"] = change**2 + total.get(f"{name}_sq", 0.0)
            similarity.append(correlations)
        return {**total, "similarity": np.stack(similarity)}

    def resample(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return maps, loadings of all subjects and similarities of one resample.

        They have the order and scale of the model's.
        """
        model = self.model
        solution = model.solution_
        scheme = method_named(solution.method).scheme
        draw, starts = np.random.SeedSequence(self.seed, spawn_key=(number,)).spawn(2)
        rng = np.random.default_rng(draw)
        n_subjects = self.stats.n_subjects
        if self.groups is None:
            drawn = rng.integers(n_subjects, size=n_subjects)
        else:
            drawn = self.groups.resample(rng)
        # As the fit of the model, but for starts and updates, of which fewer do.
        X, stats = self.drawn(drawn)
        best = multistart(
            stats,
            solution.method,
            solution.n_components,
            n_starts=min(model.starts_.n_starts, MAX_STARTS),
            n_iter=min(int(model.n_iter), MAX_UPDATES),
            tol=float(model.tol),
            halving=True,
            rules=solution.rules,
            penalty=solution.penalty,
            engine="cpu",
            random_state=starts,
        )
        weights = model.design_.sites.weights
        basis = basis_of(X, self._lifted(X.subset(drawn), best, scheme), weights)
        everyone = loadings(basis.WX, basis.WW, scheme, solution.penalty)
        if model.center_ != "none":
            # Deviations are those from the mean of the drawn subjects.
            member = model.centering_.membership(n_subjects)
            drawn_member = member[:, drawn]
            means = everyone[:, drawn] @ drawn_member.T / drawn_member.sum(axis=1)
            everyone = everyone - means @ member
        # The scale of the model: maps of a subject with the root mean square loading.
        scale = scale_of(basis.W, everyone, scheme, weights)
        maps = (basis.W * scale).T
        # Components of a fit come in no order.
        match = match_components(model.components_[:, self.used], maps, weights)
        order = reordered(match, len(maps))
        return maps[order], (everyone.T / scale)[:, order], match.similarity

    def drawn(self, rows: np.ndarray) -> tuple[Maps, Statistics]:
        """Return everyone's maps as a fit to the drawn subjects sees them, and their statistics.

        What was taken out by regression, ComBat or z-scores is estimated in them anew, by further
        passes.
        """
        model = self.model
        if self.raw is not self.X:
            X, _ = as_fitted(
                self.raw,
                rows,
                model.design_.sites,
                model.center_,
                model.measures_,
                self.confounds,
            )
            return X, Statistics.from_data(X.subset(rows), model.design_)
        # ‖X‖² is only a constant of the resample's problem: that of all subjects will do.
        stats = replace(
            self.stats,
            L=np.ascontiguousarray(np.asarray(self.stats.L)[rows]),
            root_L=self.stats.root_L[rows],
        )
        if model.center_ != "none":
            stats = stats.deviations(self.stats.energy, self.stats.sq_norm)
        return self.X, stats

    def _lifted(
        self,
        drawn: Maps,
        best: Solution,
        scheme: Scheme,
    ) -> np.ndarray:
        """Return the basis on every site, made as the model's."""
        model = self.model
        if not model.lift:
            return model.design_.matrix @ best.B
        return full_basis(
            drawn,
            model.design_,
            self.stats,
            best.B,
            best.C,
            scheme,
            model.solution_.penalty,
            model.centering_.at(model.mask_).mean_left_in,
            model.polish if scheme.projective else 0,
        ).W


def _check_same_subjects(
    model: CorticalFactorization,
    cohort: Any,
    n_subjects: int,
) -> None:
    """Refuse a cohort of other subjects, or the same ones in another order.

    Their loadings tell them apart.
    """
    fitted = model.loadings_
    different = [f"{n_subjects} subjects in place of {len(fitted)}"]
    if n_subjects == len(fitted):
        largest = np.abs(fitted).max()
        change = np.abs(model.transform(cohort) - fitted).max(axis=1)
        rows = np.flatnonzero(change > _SAME_LOADINGS * largest).tolist()
        names = subject_names(cohort) or tuple(map(str, range(n_subjects)))
        different = [f"{names[row]}, {len(rows)} of {n_subjects} different" for row in rows]
    if different:
        raise ArgumentError(
            "cohort",
            "must be the cohort that the model was fitted to, in the same order; found "
            f"{different[0]}",
        )
