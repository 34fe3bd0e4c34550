"""What a fitted model does with maps behind its public methods: sites in use, centering, loadings."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from icofactor.cohort.measures import check_measures
from icofactor.errors import ArgumentError
from icofactor.estimator.inputs import check_names, read_input
from icofactor.estimator.projection import projected_block
from icofactor.estimator.stream import open_stream
from icofactor.factorization._lift import gram, loadings, weighed
from icofactor.factorization.methods import method_named
from icofactor.preprocessing.adjusted import as_the_fit, is_cohort
from icofactor.preprocessing.centering import Centering
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.passes import Stream, each_block, pass_over
from icofactor.streaming.source import Adjustment


class FittedMaps:
    """The private half of `CorticalFactorization`, after `fit`."""

    lift: bool
    rules: str
    penalty: Any
    sites_: Any
    mask_: np.ndarray | None
    hemi_: str | None
    measures_: Any
    harmonization_: Any
    covariates_: Any
    center_: str
    mean_: np.ndarray
    deviation_: np.ndarray | None
    components_: np.ndarray
    loadings_: np.ndarray
    scale_: np.ndarray
    solution_: Any
    explained_: float

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

    def _loadings_of(self, view: Stream, names: Sequence[str] | None = None) -> np.ndarray:
        method = method_named(self.solution_.method)  # the fit's, whatever set_params did since
        W = self._used(self.components_).T / self.scale_
        inspector = Inspector(view.shape[0], view.shape[1], method.refusal(self.center_), names)
        WX = np.zeros((W.shape[1], view.shape[1]))
        heavy = weighed(W, self._used_weights)
        for _, found in pass_over(view, each_block(projected_block), own=[heavy]):
            inspector.accept(None, found)
            WX += found["sum.WX"]
        inspector.check_signs()
        return (
            loadings(WX, gram(W, self._used_weights), method.scheme, self.solution_.penalty).T
            / self.scale_
        )

    def _centered(self, n_rows: int, used: bool = False) -> Centering:
        """What was taken out of the maps before the fit, on all sites or those used, for as many
        rows of maps.
        """
        measures, codes, mean, deviation = self.measures_, None, self.mean_, self.deviation_
        if measures is not None and measures.mean is not None:
            codes, mean, deviation = measures.codes(n_rows), measures.mean, measures.deviation
        part = None if measures is None or codes is not None else self.sites_.measure
        if used:
            mean = self._used(mean)
            part, deviation = (
                None if values is None else self._used(values) for values in (part, deviation)
            )
        factor = None if measures is None else measures.factor
        factor = None if factor is None or bool((factor == 1).all()) else factor
        return Centering(
            self.center_, mean, deviation, 0, factor, codes, part, self.sites_.n_hemispheres
        )

    @property
    def _adjustment(self) -> Adjustment | None:
        """The same for the sites that are used and the rows that were fitted, as a source applies
        it.
        """
        return self._centered(len(self.loadings_), used=True).adjustment

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
        """Weight of each site, 0 if masked; None if all weights are equal."""
        return self.sites_.weights

    @property
    def _used_weights(self) -> np.ndarray | None:
        return None if self.weights_ is None else self._used(self.weights_)

    def _used(self, values: np.ndarray) -> np.ndarray:
        return values if self.mask_ is None else values[..., self.mask_]
