"""`CorticalFactorization`: validate, assemble, call, store. No mathematics of its own."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.cohort.cohort import Measurement
from icofactor.cohort.measures import check_measures
from icofactor.cohort.people import warn_of_repeated
from icofactor.errors import ArgumentError, Phrase, counted
from icofactor.estimator.fitting import make_fit, projected_block, score_block
from icofactor.estimator.inputs import check_array, check_mask, check_names, check_weights, read_input, weighted_sites
from icofactor.estimator.workspace import open_stream, open_workplace
from icofactor.factorization._lift import gram, loadings, weighed
from icofactor.factorization._refine import Refinement
from icofactor.factorization.design import KINDS
from icofactor.factorization.engines import check_engine
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.schemes.base import check_penalty, check_rules
from icofactor.factorization.starts import RandomState, check_enough_subjects, seeds_of
from icofactor.io.tables import numbered
from icofactor.preprocessing.adjusted import as_the_fit, is_cohort, step_of
from icofactor.preprocessing.centering import Centering, center_of
from icofactor.preprocessing.combat import ComBat, Harmonization
from icofactor.preprocessing.covariates import covariates_of
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.passes import Stream, each_block, pass_over
from icofactor.streaming.runners import one_blas_thread
from icofactor.streaming.source import Adjustment

_NUMBERS = ("n_components", "n_iter", "tol", "level", "polish", "sigma")


class CorticalFactorization(TransformerMixin, BaseEstimator):
    """Factorize cortical maps, subjects × sites, into a few basis maps and per-subject loadings.

    Solves X ≈ W C on the faces of an icosahedral hierarchy first, where an update costs a small
    part of one on the mesh, then lifts the basis to every site in one pass over X.

    Parameters
    ----------
    n_components : int
        Number of basis maps.
    method : str
        One of `icofactor.METHODS`: a scheme (DL, PNNMF, SPNNMF, PPNMF), plain or extrapolated (E-, LE-), or
        coordinate descent on the objectives of PNNMF and SPNNMF (CD-); or parts of deviations from the mean map
        ("parts", the default), whose components replicate best.
    center : {"auto", "none", "mean", "zscore"}
        Centering of every site before the fit: none, subtract its mean over the fitted subjects, or also divide by its
        standard deviation. "auto" is the method's default: "mean" for "parts", "none" for all others. The non-negative
        factorizations (PNNMF, SPNNMF) allow only "none".
    mesh : str, Sites, path, pair of these, or None
        "fsaverage3" to "fsaverage7"; the sites; or a sphere file (a pair for two hemispheres). None infers the mesh
        from the data if only one mesh has that many sites.
    hemi : {"left", "right", "both"} or None
        Hemisphere of the columns; "both" is left then right, with joint loadings. None: taken from the data.
    mask : (n_sites,) bool array or None
        True where a site is used; the medial wall is False. Basis maps are zero where it is False.
    weights : "area", "none", path, pair of paths, (n_sites,) array or None
        Weight of each site in sums over sites. "area": its area on fsaverage's average midthickness surface, or on the
        sphere for other meshes. Files of midthickness surfaces or areas, one per hemisphere; or a folder of
        HCPpipelines or TemplateFlow with those of the group. None: number of vertices for parcels, else equal weights
        ("none"). Scaled to a mean of 1.
    columns : {"partition", "smooth", "exponential"}
        Kind of design columns.
    sigma : float or None
        Width of smooth and exponential columns; None is 0.1 and the paper's 0.015.
    level : int
        Level of the faces to start from: 0 (20 faces per hemisphere), 1 (80), 2 (320), ...; the mesh's own level if
        that is coarser.
    n_starts : int or None
        Random starts on the coarse faces; the best is kept. None: 50 hard starts for "parts", of which the ten best are
        finished, and ten for other methods.
    n_iter : int
        Most updates of each start.
    tol : float
        A start ends when its objective fell by less than this, relative, over ten updates. 0: never before `n_iter`.
    halving : bool
        Drop the worse half of the starts after 1/16, 1/8, 1/4 and 1/2 of the updates.
    refinement : Refinement, "auto" or None
        Schedule of divisions of the worst faces after the starts.
    lift : bool
        Whether to find the basis at full resolution; otherwise it is constant (or a bump) on each face.
    polish : int
        Sweeps of loadings and basis at full resolution after the lift, each one pass over X.
    rules : {"default", "paper"}
        Improved updates, or exactly those of the paper.
    penalty : "paper" or float
        λ of the scheme.
    engine : {"auto", "numpy", "cpu", "jax"}
        Where the updates run; `starts_.engine` says what "auto" chose.
    random_state : int, RandomState or None
        The same int gives the same bits.
    harmonize : ComBat or None
        How maps are harmonized over scanners before everything else, e.g. ``preprocessing.ComBat("site", ["age"])``;
        needs a Cohort whose participants have the columns. Maps that are already harmonized are not changed.
    verbose : bool
        Show progress bars.

    Attributes
    ----------
    components_ : (n_components, n_sites)
        Basis maps at full resolution, ordered by explained variance, in the data's units: a subject whose loading is
        1 carries the map as it stands (see `loadings_`).
    loadings_ : (n_subjects, n_components)
        Loadings of the fitted subjects, scaled to a root mean square of 1 per component over them; equal to
        `transform` of the same data. Projective methods are not scaled: there loadings are X @ components_.T.
    explained_variance_ : (n_components,)
        Between-subject variance that each component carries alone, ‖w_j‖² Σ_s (c_js − mean)².
    explained_variance_ratio_ : (n_components,)
        The same over `total_variance_`. Components overlap, so the sum is not what they explain together.
    error_ : float
        ‖X − WC‖² at full resolution.
    total_variance_ : float
        Σ (x − the site's mean)², the between-subject variance of X.
    explained_ : float
        1 − error_ / total_variance_: the share of between-subject variance that the fit explains.
    design_, solution_, starts_, refined_
        The final design; the solution in design coordinates; the starts with their spread; the refinement's course.
    depth_ : (n_sites,)
        How often the face that holds each site was divided.
    reconstruction_err_ : float
        √error_, as in scikit-learn's NMF.
    bytes_read_, passes_ : int, float
        Bytes of maps that were read, and the number of passes over all maps; 0 for arrays in memory.
    covariates_ : Covariates or None
        Covariates regressed out of X (`Covariates.apply`), and of new subjects by `transform` and `score`.
    harmonization_ : Harmonization or None
        How X was harmonized over scanners (`ComBat.transform`), and new subjects are.
    measures_ : Measures or None
        Of measures that were joined (`icofactor.join_measures`): how, and what each was multiplied by. `components_`
        are then in the units of what was fitted; ``measures_.maps(components_)`` has each measure's own.
    measurement_ : Measurement or None
        Modality, units, smoothing and preprocessing of the maps, as far as the data say.
    weights_, weighting_ : (n_sites,) and str, or None
        How much each site counted, 0 where masked; and by what.
    sites_, mask_, hemi_, mean_, scale_, n_features_in_, n_iter_
        Where the columns lie, which were used, the mean map, the scale of the loadings, numbers of columns and updates.

    References
    ----------
    Honnorat & Davatzikos, "Sparse Hierarchical Extrapolated Parametric Methods for Cortical Data Analysis".

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1)
    >>> loadings = model.fit_transform(cohort)  # or an array of subjects × sites, with mesh="fsaverage3"
    >>> loadings.shape, model.components_.shape
    ((20, 3), (3, 642))
    >>> bool(model.explained_ > 0.4)
    True
    >>> model.transform(cohort.X[:2]).shape
    (2, 3)
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        method: str = "parts",
        center: str = "auto",
        mesh: Any = None,
        hemi: str | None = None,
        mask: Any = None,
        weights: Any = None,
        columns: str = "partition",
        sigma: float | None = None,
        level: int = 2,
        n_starts: int | None = None,
        n_iter: int = 3000,
        tol: float = 1e-5,
        halving: bool = False,
        refinement: Refinement | str | None = "auto",
        lift: bool = True,
        polish: int = 0,
        rules: str = "default",
        penalty: str | float = "paper",
        engine: str = "auto",
        random_state: RandomState = 0,
        harmonize: ComBat | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.center = center
        self.mesh = mesh
        self.hemi = hemi
        self.mask = mask
        self.weights = weights
        self.columns = columns
        self.sigma = sigma
        self.level = level
        self.n_starts = n_starts
        self.n_iter = n_iter
        self.tol = tol
        self.halving = halving
        self.refinement = refinement
        self.lift = lift
        self.polish = polish
        self.rules = rules
        self.penalty = penalty
        self.engine = engine
        self.random_state = random_state
        self.harmonize = harmonize
        self.verbose = verbose

    @classmethod
    def paper(cls, method: str = "LE-PNNMF", n_components: int = 10, **changes: Any) -> CorticalFactorization:
        """The literal setting of the paper: 20 exponential columns of σ = 0.015, 1000 starts × 1000 updates, ten
        refinements of five faces, no lift. `changes` override single parameters."""
        literal: dict[str, Any] = {
            "columns": "exponential",
            "level": 0,
            "n_starts": 1000,
            "n_iter": 1000,
            "tol": 0.0,
            "refinement": Refinement.paper(),
            "lift": False,
            "rules": "paper",
        }
        return cls(n_components, method=method, **{**literal, **changes})

    @property
    def schedule(self) -> Refinement:
        """The refinement that a fit makes: as given, or for "auto" the method's own."""
        if isinstance(self.refinement, Refinement):
            return self.refinement
        refined = self.refinement == "auto" and method_named(self.method).scheme.refined
        return Refinement() if refined else Refinement(steps=0)

    @property
    def centers_by(self) -> str:
        """What a fit takes out of every site: `center`, or for "auto" the method's own."""
        method = method_named(self.method)
        return center_of(self.center, method.scheme.centers, method.name, self.rules)

    @property
    def takes_negative(self) -> bool:
        """Whether `fit` takes maps with negative values: by its method, or because of what is taken out of them."""
        return method_named(self.method).takes_negative(self.centers_by)

    # ------------------------------------------------------------------ fitting

    def fit(
        self, X: Any, y: None = None, *, work_dir: str | os.PathLike[str] | None = None, client: Any = None
    ) -> CorticalFactorization:
        """Fit to maps, one per subject.

        Parameters
        ----------
        X : subjects × sites array, Cohort, or nilearn SurfaceImage
            Memory-mapped and dask arrays, stored cohorts and anything sliced like an array are never held: one pass
            gathers the statistics, one lifts. Refinement then goes as deep as a pyramid of the sums fits into memory.
        y : ignored
        work_dir : path, optional
            Finished pieces are kept in this folder; the same call goes on from them after an interruption, to the same
            bits. It is refused when it holds the work of other data or settings.
        client : dask.distributed.Client, optional
            Statistics, starts and lift are made by its workers, which read stores themselves. They must see `work_dir`.
        """
        try:
            with one_blas_thread():
                return self._fit(X, work_dir, client)
        except KeyboardInterrupt:
            if work_dir is None:
                raise
            kept = (
                f"interrupted; finished steps are kept in {os.fspath(work_dir)}, and the same call resumes from there"
            )
            raise KeyboardInterrupt(kept) from None

    def _fit(self, X: Any, work_dir: str | os.PathLike[str] | None, client: Any) -> CorticalFactorization:
        method = self.check_parameters()
        warn_of_repeated(X)
        X = self.harmonized(X, self.harmonize)
        given = read_input(X, self.mesh, self.hemi)
        mask = check_mask(given.mask if self.mask is None else self.mask, given.sites)
        whole, weighting = weighted_sites(given.sites, mask, self.weights, given.hemi)
        given, sites = replace(given, sites=whole), whole if mask is None else whole.subset(mask)
        self.check_shape(given.X.shape)
        place = open_workplace(given, mask, self.get_params(deep=False), self.random_state, work_dir, client)
        found = make_fit(self, method, place, sites, getattr(X, "subjects", None), given.measures)

        self.sites_, self.mask_, self.hemi_, self.weighting_ = whole, mask, given.hemi, weighting
        self.covariates_, self.harmonization_ = covariates_of(X), step_of(X, Harmonization)
        self.measurement_, self.n_features_in_ = Measurement.of(X), given.X.shape[1]
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        refined, centering, reported = found.refined, found.centering, found.reported
        self.starts_, self.refined_ = found.starts, refined
        self.design_, self.solution_, self.n_iter_ = refined.design, refined.solution, refined.solution.n_iter
        self.depth_ = self._on_all_sites(refined.design.site_depth)
        mean, deviation = self._on_all_sites(centering.mean), centering.deviation
        deviation = None if deviation is None else self._on_all_sites(deviation)
        self.measures_ = found.measures
        if found.measures is not None and centering.codes is not None:
            self.measures_ = replace(found.measures, mean=mean, deviation=deviation)
            mean, deviation = mean.mean(axis=0), None
        self.center_, self.mean_, self.deviation_ = centering.kind, mean, deviation
        self.n_constant_sites_ = centering.n_constant
        self.components_ = self._on_all_sites(reported.components)
        self.loadings_, self.scale_ = reported.loadings, reported.scale
        recurrence = found.starts.recurrence  # of the components in the order of the starts
        self.recurrence_ = None if recurrence is None else recurrence[reported.order]
        self.error_, self.total_variance_ = found.error, found.variance
        self.explained_variance_ = reported.variance
        self.explained_variance_ratio_ = reported.variance / found.variance
        self.explained_ = 1 - found.error / found.variance
        self.reconstruction_err_ = float(np.sqrt(max(found.error, 0.0)))
        if self.explained_ < 0:
            self._warn_of_nothing_explained()
        if self.measures_ is not None and self.measures_.warning:
            warnings.warn(self.measures_.warning, UserWarning, stacklevel=3)
        self.bytes_read_, self.passes_ = found.bytes_read, found.bytes_read / max(1, place.X.source.n_bytes)
        return self

    def harmonized(self, X: Any, combat: ComBat | None) -> Any:
        """X as `combat`, fitted to it, leaves it, ≥ 0 where the method needs it; data that are so already stay."""
        if combat is None or step_of(X, Harmonization) is not None:
            return X
        chosen: ComBat = clone(combat)
        if chosen.nonnegative is None:
            chosen.set_params(nonnegative=not self.takes_negative)
        return chosen.fit_transform(X, mask=self.mask)

    def _warn_of_nothing_explained(self) -> None:
        remedy = "use more components or more updates"
        if not self.lift:
            remedy = "maps that are constant on faces miss finer detail; use lift=True"
        elif self.rules == "paper" or not isinstance(self.penalty, str):
            remedy = f"give a penalty below {self.solution_.penalty:.3g}, or use the default rules and penalty"
        said = f"the components explain less than the mean map of the subjects does: explained_ = {self.explained_:.3g}"
        warnings.warn(f"{said}; {remedy}", UserWarning, stacklevel=4)

    def _on_all_sites(self, values: np.ndarray) -> np.ndarray:
        """Values of the sites used, on all sites, zero where masked."""
        if self.mask_ is None:
            return values
        full = np.zeros((*values.shape[:-1], len(self.mask_)), dtype=values.dtype)
        full[..., self.mask_] = values
        return full

    # ------------------------------------------------------------------ using the fit

    def fit_transform(
        self, X: Any, y: None = None, *, work_dir: str | os.PathLike[str] | None = None, client: Any = None
    ) -> np.ndarray:
        """Fit, and the loadings of the fitted subjects, subjects × components; see `fit`."""
        return self.fit(X, work_dir=work_dir, client=client).loadings_.copy()  # the caller's to change

    def transform(self, X: Any, *, client: Any = None) -> np.ndarray:
        """Loadings of subjects, new or not, by the scheme's convex problem with the basis fixed.

        One pass over X; on the workers of a dask.distributed `client` where one is given.
        """
        with one_blas_thread():
            return self._loadings_of(self._view(X, client), getattr(X, "subjects", None))

    def _loadings_of(self, view: Stream, names: Sequence[str] | None = None) -> np.ndarray:
        method = method_named(self.solution_.method)  # the fit's, whatever set_params did since
        W = self._used(self.components_).T / self.scale_
        inspector = Inspector(view.shape[0], view.shape[1], method.refusal(self.center_), names)
        WX = np.zeros((W.shape[1], view.shape[1]))
        for _, found in pass_over(view, each_block(projected_block), own=[weighed(W, self._used_weights)]):
            inspector.accept(None, found)
            WX += found["sum.WX"]
        inspector.check_signs()
        return loadings(WX, gram(W, self._used_weights), method.scheme, self.solution_.penalty).T / self.scale_

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Maps from loadings, in the data's units: X @ components_, times the standard deviations and plus the mean map
        where they were taken out; zero at masked sites."""
        check_is_fitted(self)
        Z = check_array(X)
        if Z.shape[1] != len(self.components_):
            expected = f"loadings on {len(self.components_)} components"
            raise ArgumentError("X", Phrase(f"{Z.shape[1]} columns"), expected)
        return self._centered(len(Z)).undone(np.asarray(Z) @ self.components_)

    def _centered(self, n_rows: int, used: bool = False) -> Centering:
        """What was taken out of the maps before the fit, on all sites or those used, for as many rows of maps."""
        measures, codes, mean, deviation = self.measures_, None, self.mean_, self.deviation_
        if measures is not None and measures.mean is not None:
            codes, mean, deviation = measures.codes(n_rows), measures.mean, measures.deviation
        part = None if measures is None or codes is not None else self.sites_.measure
        if used:
            mean = self._used(mean)
            part, deviation = (None if values is None else self._used(values) for values in (part, deviation))
        factor = None if measures is None else measures.factor
        factor = None if factor is None or bool((factor == 1).all()) else factor
        return Centering(self.center_, mean, deviation, 0, factor, codes, part, self.sites_.n_hemispheres)

    @property
    def _adjustment(self) -> Adjustment | None:
        """The same for the sites that are used and the rows that were fitted, as a source applies it."""
        return self._centered(len(self.loadings_), used=True).adjustment

    def score(self, X: Any, y: None = None) -> float:
        """Share of the variance of X about the fitted subjects' mean map that the fit explains; 1 is perfect."""
        view = self._view(X)
        C = self._loadings_of(view, getattr(X, "subjects", None))
        W, centering = self._used(self.components_).T, self._centered(len(C), used=True)
        shared = {"C": C, "codes": np.zeros(1, dtype=int) if centering.codes is None else centering.codes}
        own, sums = [W, np.atleast_2d(centering.left).T, self._used_weights], np.zeros(2)
        for _, found in pass_over(view, each_block(score_block), shared, own):
            sums += found["sum.squares"]
        error, variance = sums.tolist()
        if variance == 0:
            what = "X equals the fitted subjects' mean map everywhere; it has no variance to explain"
            raise ArgumentError("X", None, what)
        return 1 - error / variance

    def _view(self, X: Any, client: Any = None) -> Stream:
        """New data as sites × subjects on the sites of the fit."""
        check_is_fitted(self)
        check_names(X, getattr(self, "feature_names_in_", None))
        data = as_the_fit(X, self.harmonization_, self.covariates_)
        given = read_input(data, self.sites_, self.hemi_ if self.hemi_ != "both" else None)
        if given.X.shape[0] < 1:
            raise ArgumentError("X", None, "X has no subjects (0 rows)")
        if is_cohort(X):
            check_measures(given.measures, self.measures_)
        adjustment = self._centered(int(given.X.shape[0]), used=True).adjustment
        return open_stream(given.X, self.mask_, client, adjustment)

    @property
    def weights_(self) -> np.ndarray | None:
        return self.sites_.weights

    @property
    def _used_weights(self) -> np.ndarray | None:
        return None if self.weights_ is None else self._used(self.weights_)

    def _used(self, values: np.ndarray) -> np.ndarray:
        return values if self.mask_ is None else values[..., self.mask_]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the components, as the tables of a fit have them: component01, component02, ..."""
        check_is_fitted(self)
        return np.array(numbered("component", len(self.components_)), dtype=object)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to one zarr zip file, whole or not at all; `icofactor.load_model` reads it."""
        from icofactor.estimator.saving import save_model

        check_is_fitted(self)
        save_model(self, path, overwrite)

    # ------------------------------------------------------------------ checks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            tags.input_tags.positive_only = not self.takes_negative
        except ArgumentError:  # parameters are checked by `fit`
            tags.input_tags.positive_only = True
        return tags

    def check_parameters(self) -> Method:
        """Refuse parameters that cannot be, as `fit` does before it looks at the data; returns the method."""
        method = method_named(self.method)
        check_rules(self.rules, method.scheme)
        check_penalty(self.penalty, method.scheme)
        _ = self.centers_by
        check_parameters(**{name: getattr(self, name) for name in _NUMBERS})
        if self.n_starts is not None:
            check_parameters(n_starts=self.n_starts)
        check_engine(self.engine)
        check_weights(self.weights)
        seeds_of(self.random_state)
        check_value("columns", self.columns, OneOf(KINDS))
        if self.harmonize is not None and not isinstance(self.harmonize, ComBat):
            raise ArgumentError("harmonize", Phrase(type(self.harmonize).__name__), "a ComBat or None")
        if self.refinement is not None and self.refinement != "auto":
            if not isinstance(self.refinement, Refinement):
                found = Phrase(type(self.refinement).__name__)
                raise ArgumentError("refinement", found, "a Refinement, 'auto' or None")
            self.refinement.check()
        return method

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Refuse data of this shape, subjects × sites, where `fit` would."""
        n_subjects = shape[0]
        if n_subjects < 2:
            held = f"X holds {counted(n_subjects, 'subject')}; fit needs at least 2 (transform takes one)"
            raise ArgumentError("X", None, f"{held}: n_samples={n_subjects}")
        if shape[1] < 2:
            raise ArgumentError("X", None, "X has one site; there is no map to factorize: n_features=1")
        check_enough_subjects(self.n_components, n_subjects)
