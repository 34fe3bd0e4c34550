"""`CorticalFactorization`: validate, assemble, call, store. No mathematics of its own."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.cohort import Measurement
from icofactor.cohort.people import warn_of_repeated
from icofactor.errors import ArgumentError
from icofactor.estimator.fitted import FittedMaps
from icofactor.estimator.fitting import Fitted, fit_maps
from icofactor.estimator.inputs import (
    check_array,
    check_executor,
    check_mask,
    check_settings,
    check_size,
    read_input,
)
from icofactor.estimator.projection import score_strip
from icofactor.estimator.site_weights import weighted_sites
from icofactor.factorization._refine import Refinement
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.starts import RandomState
from icofactor.io.tables import numbered
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.adjusted import step_of
from icofactor.preprocessing.centering import center_of
from icofactor.preprocessing.combat import ComBat, Harmonization
from icofactor.preprocessing.covariates import covariates_of
from icofactor.sphere.sites import Sites

# Default level; on coarser meshes the fit uses the level of the mesh, without a warning.
LEVEL = 2


class CorticalFactorization(FittedMaps, TransformerMixin, BaseEstimator):
    """Factorize cortical maps into a few basis maps and per-subject loadings.

    The maps X (subjects × sites) are approximated by loadings × components. The fit first runs on
    the faces of an icosahedral hierarchy, where updates are cheap, and then lifts the components to
    every site in one pass over X.

    Parameters
    ----------
    n_components : int, default=10
        Number of components (basis maps).
    method : str, default="parts"
        One of `icofactor.METHODS`. "parts" finds regions where people deviate from the mean map
        together; they
        hardly overlap, and loadings are signed. "CD-PNNMF" is non-negative matrix factorization
        with the smallest error. The methods of the paper are DL, PNNMF, SPNNMF and PPNMF, plain or
        extrapolated (E-, LE-).
    center : {"auto", "none", "mean", "zscore"}, default="auto"
        Centering of every site before the fit: none, subtract its mean over the fitted subjects, or
        also divide by its standard deviation. "auto" is "mean" for "parts" and "none" for all other
        methods. The non-negative factorizations (PNNMF, SPNNMF) allow only "none".
    mesh : str, Sites, path, pair of paths, or None, default=None
        Mesh of the columns: "fsaverage3" to "fsaverage7", "fsLR32k", a `Sites` object, or a sphere
        file (a pair for
        two hemispheres). None infers the mesh from the data, if only one mesh has that many sites.
    hemi : {"left", "right", "both"} or None, default=None
        Hemisphere of the columns. "both" means left columns, then right columns, with shared
        loadings. None takes it from the data.
    mask : array of bool, shape (n_sites,), or None, default=None
        True for sites to use; False for the medial wall. Components are zero at the other sites.
    weights : "area", "none", path, pair of paths, array of shape (n_sites,), or None, default=None
        Weight of each site in sums over sites, scaled to a mean of 1. "area" uses the area on
        fsaverage's average midthickness surface, or on the sphere for other meshes. Paths name
        midthickness surfaces or areas, one per hemisphere, or a folder of HCPpipelines or
        TemplateFlow. None uses the number of vertices for parcels, and
        equal weights ("none") otherwise.
    columns : {"partition", "smooth", "exponential"}, default="partition"
        Kind of design columns. "exponential" is that of the paper.
    sigma : float or None, default=None
        Width of smooth and exponential columns. None uses 0.1 for smooth and 0.015, as in the
        paper, for exponential.
    level : int, default=2
        Level of the faces to start from: 0 (20 faces per hemisphere), 1 (80), 2 (320), ... Levels
        finer than the
        mesh start from the level of the mesh, with a warning.
    n_starts : int or None, default=None
        Number of random starts; the best is kept. None uses 50 hard starts for "parts", of which
        the best ten are finished, and ten starts for other methods.
    n_iter : int, default=3000
        Maximum number of updates of each start.
    tol : float, default=1e-5
        A start ends if its objective falls by less than this, relative, over ten updates. 0 always
        makes `n_iter` updates.
    halving : bool, default=False
        Whether to drop the worse half of the starts after 1/16, 1/8, 1/4 and 1/2 of the updates.
    refinement : Refinement, "auto" or None, default="auto"
        How to divide the worst faces after the starts. "auto" uses the default of the method: no
        divisions for
        "parts", `Refinement()` for most others.
    lift : bool, default=True
        Whether to compute the components at full resolution. Otherwise they are constant (or a
        bump) on each face.
    polish : int, default=0
        Number of additional sweeps at full resolution after the lift. Each takes one pass over X.
    rules : {"default", "paper"}, default="default"
        Improved updates, or exactly those of the paper.
    penalty : "paper" or float, default="paper"
        Penalty λ of the method. "paper" is that of the paper, scaled to the data under default
        rules.
    engine : {"auto", "numpy", "cpu", "jax"}, default="auto"
        Where updates run; "jax" makes the starts only. `starts_.engine` is the choice of "auto".
    random_state : int, RandomState or None, default=0
        Seed. The same int gives the same bits.
    harmonize : ComBat or None, default=None
        Harmonization of scanners before the fit, such as ``preprocessing.ComBat("site", ["age"])``.
        It needs a Cohort whose participants have these columns. Maps that are already harmonized do
        not change.
    verbose : bool, default=False
        Whether to show progress bars.

    Attributes
    ----------
    components_ : array of shape (n_components, n_sites)
        Components in the units of the data, ordered by explained variance: the contribution to the
        map of a subject with a loading of 1.
    loadings_ : array of shape (n_subjects, n_components)
        Loadings of the fitted subjects, equal to `transform` of the same data. Each column has a
        root mean square of
        1, except for projective methods of the paper, where loadings are X @ components_.T.
    recurrence_ : array of shape (n_components,) or None
        Share of the other random starts on the same people that fit as well as the best and reach
        each component.
    explained_ : float
        Share of the between-subject variance that all components explain together: 1 − error_ /
        total_variance_.
    explained_variance_, explained_variance_ratio_ : arrays of shape (n_components,)
        Between-subject variance that each component carries alone, ‖w_j‖² Σ_s (c_js − mean)², and
        its share of `total_variance_`. Components overlap, so the shares do not add up to
        `explained_`.
    error_, reconstruction_err_ : float
        Squared error ‖X − WC‖² at full resolution, and its root, as in scikit-learn's NMF.
    total_variance_ : float
        Between-subject variance Σ (x − mean of the site)².
    mean_, scale_ : arrays of shape (n_sites,) and (n_components,)
        Mean map, and scale of the loadings.
    sites_, mask_, hemi_ : Sites, array of bool or None, str
        Positions of the columns, which of them were used, and their hemisphere.
    design_, solution_, starts_, refined_
        Final design, solution in design coordinates, starts with their spread, and course of the
        refinement.
    depth_ : array of shape (n_sites,)
        How often the face of each site was divided.
    covariates_, harmonization_ : Covariates or None, Harmonization or None
        What was regressed out of X, and how X was harmonized. `transform` and `score` apply both to
        new subjects.
    measures_ : Measures or None
        How measures were joined (`icofactor.join_measures`). ``measures_.maps(components_)``
        returns maps in the units of each measure.
    measurement_ : Measurement or None
        Modality, units, smoothing and preprocessing of the maps, if known.
    weights_, weighting_ : array of shape (n_sites,) and str, or None
        Weight of each site, 0 if masked, and where the weights come from.
    n_features_in_, n_iter_, bytes_read_, passes_ : int, int, int, float
        Number of columns, number of updates, bytes of maps read, and passes over all maps (0 for
        arrays in memory).

    References
    ----------
    Honnorat & Davatzikos, "Sparse Hierarchical Extrapolated Parametric Methods for Cortical Data
    Analysis".

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1)
    >>> # Or of an array of subjects × sites, with mesh="fsaverage3".
    >>> loadings = model.fit_transform(cohort)
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
        level: int = LEVEL,
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
    def paper(
        cls,
        method: str = "LE-PNNMF",
        n_components: int = 10,
        **changes: Any,
    ) -> CorticalFactorization:
        """Return an estimator with exactly the settings of the paper.

        These are 20 exponential columns with σ = 0.015, 1000 starts × 1000 updates, ten refinements
        of five faces, and no lift. `changes` override single parameters.

        Examples
        --------
        >>> import icofactor as ico
        >>> model = ico.CorticalFactorization.paper("LE-PNNMF", n_components=6, n_starts=100)
        >>> model.rules, model.n_components, model.n_starts
        ('paper', 6, 100)
        """
        # Exactly the words of the paper; the defaults improve on them.
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
        """The refinement that `fit` uses: `refinement`, or the default of the method for "auto"."""
        if isinstance(self.refinement, Refinement):
            return self.refinement
        # Parts gain nothing from finer faces.
        refined = self.refinement == "auto" and method_named(self.method).scheme.refined
        return Refinement() if refined else Refinement(steps=0)

    @property
    def centers_by(self) -> str:
        """The centering that `fit` uses: `center`, or the default of the method for "auto"."""
        method = method_named(self.method)
        return center_of(self.center, method.scheme.centers, method.name, self.rules)

    @property
    def takes_negative(self) -> bool:
        """Whether `fit` accepts maps with negative values, with this method and centering."""
        return method_named(self.method).takes_negative(self.centers_by)

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        executor: Executor | None = None,
    ) -> CorticalFactorization:
        """Fit the model to maps, one per subject.

        Parameters
        ----------
        X : array of shape (n_subjects, n_sites), Cohort, or nilearn SurfaceImage
            Memory-mapped arrays, dask arrays, stored cohorts and other objects that can be sliced
            like an array are never loaded as a whole. They are read twice: for the statistics and
            for the lift.
        y : None
            Ignored.
        executor : concurrent.futures.Executor, optional
            Where blocks of the maps are worked on, such as a ``ProcessPoolExecutor``, or
            ``client.get_executor()`` of a dask client, whose workers must be able to read stores.
            Default: threads of this process.

        Returns
        -------
        CorticalFactorization
            The fitted estimator itself.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
        >>> model.components_.shape, len(model.recurrence_)
        ((3, 642), 3)
        """
        with one_blas_thread():
            method = self.check_parameters()
            # Scans of a person count as people of their own here; `fit_cohort` chooses scans.
            warn_of_repeated(X)
            X = self.harmonized(X, self.harmonize)
            maps, placement = read_input(X, self.mesh, self.hemi)
            check_executor(executor)
            maps = replace(maps, executor=executor)
            mask = check_mask(placement.mask if self.mask is None else self.mask, placement.sites)
            # Weights have a mean of 1 over the sites in use.
            whole, weighting = weighted_sites(placement.sites, mask, self.weights, placement.hemi)
            self.check_shape(maps.shape)
            used_sites = whole
            if mask is not None:
                used_sites = whole.subset(mask)
                maps = maps.subset(sites=mask)
            self._warn_of_fine_level(used_sites)
            # The counter of a store goes on from fit to fit.
            n_bytes = maps.counter.n_bytes
            fitted = fit_maps(self, method, X, maps, used_sites)
            self.bytes_read_ = maps.counter.n_bytes - n_bytes
            self.passes_ = self.bytes_read_ / max(1, maps.n_bytes)
        self.sites_, self.mask_, self.hemi_ = whole, mask, placement.hemi
        self.weighting_ = weighting
        self._keep_input(X)
        self._keep_fit(fitted)
        return self

    def _warn_of_fine_level(self, sites: Sites) -> None:
        if self.level > max(sites.max_level, LEVEL) and sites.regions is None:
            text = (
                f"level={self.level} is finer than the mesh: the fit starts from its finest level, "
                f"{sites.max_level}"
            )
            warnings.warn(text, UserWarning, stacklevel=3)

    def _keep_input(self, X: Any) -> None:
        """Keep what is known of the maps, and what was taken out of them."""
        self.covariates_ = covariates_of(X)
        self.harmonization_ = step_of(X, Harmonization)
        self.measurement_ = Measurement.of(X)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            # An earlier fit may have had a data frame.
            del self.feature_names_in_

    def _keep_fit(self, fitted: Fitted) -> None:
        """Keep a fit at the sites in use as the attributes of the estimator."""
        refined, reported = fitted.refined, fitted.reported
        self.starts_ = fitted.starts
        self.refined_ = refined
        self.design_ = refined.design
        self.solution_ = refined.solution
        self.depth_ = self._on_all_sites(refined.design.site_depth)
        self.centering_ = fitted.centering.on_all_sites(self.mask_)
        self.components_ = self._on_all_sites(reported.components)
        self.loadings_ = reported.loadings
        self.scale_ = reported.scale
        # The starts have the components in an order of their own.
        recurrence = fitted.starts.recurrence
        self.recurrence_ = None if recurrence is None else recurrence[reported.order]
        self.error_ = fitted.error
        self.total_variance_ = fitted.variance
        self._derive_numbers()
        # The mean map alone would have done better.
        if self.explained_ < 0:
            self._warn_of_nothing_explained()

    def harmonized(self, X: Any, combat: ComBat | None) -> Any:
        """Harmonize X with `combat`, ≥ 0 if the method requires it; data that are already
        harmonized do not change.
        """
        if combat is None or step_of(X, Harmonization) is not None:
            return X
        # Parameters of an estimator stay as the user gave them.
        chosen: ComBat = clone(combat)
        if chosen.nonnegative is None:
            chosen.set_params(nonnegative=not self.takes_negative)
        return chosen.fit_transform(X, mask=self.mask)

    def fit_transform(
        self,
        X: Any,
        y: None = None,
        *,
        executor: Executor | None = None,
    ) -> np.ndarray:
        """Fit the model and return the loadings of the fitted subjects; the parameters are those of
        `fit`.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> ico.CorticalFactorization(3, n_starts=2, level=1).fit_transform(cohort).shape
        (20, 3)
        """
        return self.fit(X, executor=executor).loadings_.copy()  # the caller's to change

    def transform(self, X: Any, *, executor: Executor | None = None) -> np.ndarray:
        """Compute the loadings of subjects, new or fitted, with the components fixed.

        Parameters
        ----------
        X : array of shape (n_subjects, n_sites), Cohort, or nilearn SurfaceImage
            Maps on the sites of the fit, read in one pass. Covariates and harmonization of the fit
            are applied to cohorts.
        executor : concurrent.futures.Executor, optional
            As in `fit`.

        Returns
        -------
        array of shape (n_subjects, n_components)

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
        >>> model.transform(cohort.X[:2]).shape
        (2, 3)
        """
        with one_blas_thread():
            maps = self._fitted_maps(X, executor)
            return self._loadings_of(maps, subject_names(X))

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Compute maps from loadings, in the units of the data.

        The result is X @ components_, multiplied by the standard deviations and added to the mean
        map if the fit removed them. Masked sites are zero.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
        >>> model.inverse_transform(model.loadings_).shape
        (20, 642)
        """
        check_is_fitted(self)
        Z = check_array(X)
        if Z.shape[1] != len(self.components_):
            message = f"must be loadings on {len(self.components_)} components"
            raise ArgumentError("X", f"{message}; found {Z.shape[1]} columns")
        return self.centering_.undone(np.asarray(Z) @ self.components_)

    def score(self, X: Any, y: None = None) -> float:
        """Return the share of the variance of X around the fitted mean map that the components
        explain; 1 is perfect.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
        >>> abs(model.score(cohort) - model.explained_) < 1e-6
        True
        """
        maps = self._fitted_maps(X)
        C = self._loadings_of(maps, subject_names(X))
        centering = self.centering_.at(self.mask_)
        shared = {"C": C, "member": centering.membership(len(C))}
        per_site = (self._used(self.components_).T, centering.left.T, self._used_weights)
        sums = np.zeros(2)
        for _, result in map_strips(score_strip, maps, *per_site, shared=shared, double=True):
            sums += result["sum.squares"]
        error, variance = sums.tolist()
        if variance == 0:
            message = (
                "equals the fitted subjects' mean map everywhere: there is no variance to explain"
            )
            raise ArgumentError("X", message)
        return 1 - error / variance

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the components, as in the tables of a fit.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
        >>> model.get_feature_names_out().tolist()
        ['component01', 'component02', 'component03']
        """
        check_is_fitted(self)
        return np.array(numbered("component", len(self.components_)), dtype=object)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the fitted model to one file, without pickle; `icofactor.load_model` reads it.

        An existing file is an error unless `overwrite` is True.

        Examples
        --------
        >>> import tempfile
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
        >>> path = tempfile.mkdtemp() + "/model.zip"
        >>> model.save(path)
        >>> bool((ico.load_model(path).components_ == model.components_).all())
        True
        """
        from icofactor.estimator.saving import save_model

        check_is_fitted(self)
        save_model(self, path, overwrite)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            tags.input_tags.positive_only = not self.takes_negative
        except ArgumentError:  # parameters are checked by `fit`
            tags.input_tags.positive_only = True
        return tags

    def check_parameters(self) -> Method:
        """Check the parameters, as `fit` does before it reads data, and return the method."""
        return check_settings(self)

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Check that data of this shape (subjects, sites) can be fitted."""
        check_size(shape, self.n_components)
