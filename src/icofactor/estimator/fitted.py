"""What a fitted model does with maps: sites in use, centering, loadings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from icofactor.errors import ArgumentError
from icofactor.estimator.inputs import check_executor, check_names, read_input
from icofactor.estimator.projection import project_strip
from icofactor.factorization._lift import gram, loadings, weighed
from icofactor.factorization.methods import method_named
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.preprocessing.adjusted import as_the_fit
from icofactor.preprocessing.centering import Centering
from icofactor.preprocessing.summary import Summary


class FittedMaps:
    """The private half of `CorticalFactorization`, after `fit`."""

    lift: bool
    rules: str
    penalty: Any
    sites_: Any
    mask_: np.ndarray | None
    hemi_: str | None
    harmonization_: Any
    covariates_: Any
    centering_: Centering
    components_: np.ndarray
    loadings_: np.ndarray
    scale_: np.ndarray
    solution_: Any
    explained_: float
    error_: float
    total_variance_: float

    def _warn_of_nothing_explained(self) -> None:
        # The likeliest reason comes last.
        remedy = "use more components or more updates"
        if not self.lift:
            remedy = "maps that are constant on faces miss finer detail; use lift=True"
        elif self.rules == "paper" or not isinstance(self.penalty, str):
            limit = f"{self.solution_.penalty:.3g}"
            remedy = f"give a penalty below {limit}, or use the default rules and penalty"
        problem = "the components explain less than the mean map of the subjects does"
        message = f"{problem}: explained_ = {self.explained_:.3g}; {remedy}"
        warnings.warn(message, UserWarning, stacklevel=4)

    def _on_all_sites(self, values: np.ndarray) -> np.ndarray:
        """Values of the sites used, on all sites, zero where masked."""
        if self.mask_ is None:
            return values
        full = np.zeros((*values.shape[:-1], len(self.mask_)), dtype=values.dtype)
        full[..., self.mask_] = values
        return full

    def _derive_numbers(self) -> None:
        """Set the attributes that follow from others, after a fit or after loading one."""
        self.n_features_in_ = self.components_.shape[1]
        self.n_iter_ = self.solution_.n_iter
        self.n_constant_sites_ = self.centering_.at(self.mask_).n_constant
        # In one order in memory, whether fitted or read from a file: sums then have the same bits.
        profiles = np.ascontiguousarray(self.loadings_.T)
        deviations = self.centering_.deviations(profiles)
        # What a component carries alone: ‖w‖² Σ (c − mean)².
        sizes = self.sites_.weigh(np.square(self.components_).T).sum(axis=0)
        self.explained_variance_ = sizes * np.square(deviations).sum(axis=1)
        self.explained_variance_ratio_ = self.explained_variance_ / self.total_variance_
        self.explained_ = 1 - self.error_ / self.total_variance_
        self.reconstruction_err_ = float(np.sqrt(max(self.error_, 0.0)))

    def _loadings_of(self, maps: Maps, names: Sequence[str] | None = None) -> np.ndarray:
        """Return the loadings of new maps, centred as those of the fit, in one pass."""
        # The method of the fit, whatever set_params did since.
        method = method_named(self.solution_.method)
        W = self._used(self.components_).T / self.scale_
        summary = Summary(maps.n_sites, maps.n_subjects, method.refusal(self.center_), names)
        WX = np.zeros((W.shape[1], maps.n_subjects))
        for _, result in map_strips(project_strip, maps, weighed(W, self._used_weights)):
            summary.add_range(result)
            WX += result["sum.WX"]
        # Only now is every subject with negative values known.
        summary.check_signs()
        WW = gram(W, self._used_weights)
        return loadings(WX, WW, method.scheme, self.solution_.penalty).T / self.scale_

    def _fitted_maps(self, X: Any, executor: Executor | None = None) -> Maps:
        """Return new data as the fit sees maps: at its sites, adjusted and centred."""
        check_is_fitted(self)
        check_names(X, getattr(self, "feature_names_in_", None))
        data = as_the_fit(X, self.harmonization_, self.covariates_, measures=self.measures_)
        # "both" follows from the sites; a side must agree with that of the data.
        hemi = self.hemi_ if self.hemi_ != "both" else None
        maps, _ = read_input(data, self.sites_, hemi)
        if maps.n_subjects < 1:
            raise ArgumentError("X", "has no subjects (0 rows)")
        # A wrong executor is refused before the first block is read.
        check_executor(executor)
        maps = replace(maps, executor=executor)
        if self.mask_ is not None:
            maps = maps.subset(sites=self.mask_)
        return self.centering_.at(self.mask_).applied(maps)

    @property
    def measures_(self) -> Any:
        """How several measures were joined and scaled; None for one."""
        return self.centering_.described_measures

    @property
    def center_(self) -> str:
        """The centering of the fit: "none", "mean" or "zscore"."""
        return self.centering_.kind

    @property
    def mean_(self) -> np.ndarray:
        """Mean map; of measures that share maps, the mean over the measures."""
        return np.asarray(self.centering_.mean.mean(axis=0))

    @property
    def deviation_(self) -> np.ndarray | None:
        """Standard deviation of every site, for z-scores of one measure."""
        deviation = self.centering_.deviation
        return None if deviation is None or len(deviation) > 1 else deviation[0]

    @property
    def weights_(self) -> np.ndarray | None:
        """Weight of each site, 0 if masked; None if all weights are equal."""
        return self.sites_.weights

    @property
    def _used_weights(self) -> np.ndarray | None:
        return None if self.weights_ is None else self._used(self.weights_)

    def _used(self, values: np.ndarray) -> np.ndarray:
        return values if self.mask_ is None else values[..., self.mask_]
