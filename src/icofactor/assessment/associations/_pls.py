"""Behavioural partial least squares: which pattern of components goes with which pattern of
behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.assessment.associations._associate import (
    group_labels,
    loadings_of,
    too_few_permutations,
)
from icofactor.assessment.associations.design import complete_rows, row_names, rows_of
from icofactor.assessment.associations.exchange import Exchange, p_of
from icofactor.assessment.associations.regression import Groups
from icofactor.assessment.selection.choice import verbatim
from icofactor.checks import Whole, check_parameters, check_value
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.factorization.starts import seeds_of
from icofactor.io.tables import cell_text, is_number

_NAMES = ("participant_id", "session_id")
_INTERVAL = (2.5, 97.5)
_BATCH = 100
_MOST_NULL_SPLITS = 200
"""Permutations whose halves are compared."""


@dataclass(frozen=True, eq=False)
class PLS:
    """Latent variables of loadings and behaviour, the result of `pls`: r of them, for k components
    and q measures.

    Attributes
    ----------
    components, measures : tuple of str
        Names.
    singular_values, explained : arrays of shape (r,)
        Singular values of the cross-correlation, and their shares of the squared cross-correlation.
    p : array of shape (r,)
        By permutation of behaviour; NaN without permutations.
    component_weights, measure_weights : arrays of shape (k, r) and (q, r)
        Singular vectors.
    component_scores, measure_scores : arrays of shape (n_rows, r)
        Scores of people.
    correlation : array of shape (r,)
        Correlation of the two scores.
    component_correlations, measure_correlations : arrays of shape (k, r) and (q, r)
        Correlation of each variable with the score of the other side.
    component_interval, measure_interval : arrays of shape (2, k, r) and (2, q, r)
        95 % intervals of these correlations over resamples of people.
    component_ratios, measure_ratios : arrays of shape (k, r) and (q, r)
        Bootstrap ratios: weight × singular value / standard error over resamples.
    component_reproducibility, measure_reproducibility : arrays of shape (r,)
        Mean correlation of the patterns of two halves; `..._p` is p against permuted behaviour.
    rows : int array
        Numbers of the rows used.
    notes : list of str
        Remarks.

    Examples
    --------
    >>> import numpy as np, icofactor as ico
    >>> rng = np.random.default_rng(0)
    >>> behaviour = {"memory": rng.normal(size=40), "speed": rng.normal(size=40)}
    >>> found = ico.pls(rng.normal(size=(40, 3)), behaviour, n_permutations=99, n_bootstrap=50, n_splits=5)
    >>> found.component_weights.shape, found.measures
    ((3, 2), ('memory', 'speed'))
    """

    components: tuple[str, ...]
    measures: tuple[str, ...]
    singular_values: np.ndarray
    explained: np.ndarray
    p: np.ndarray
    component_weights: np.ndarray
    measure_weights: np.ndarray
    component_scores: np.ndarray
    measure_scores: np.ndarray
    correlation: np.ndarray
    component_correlations: np.ndarray
    measure_correlations: np.ndarray
    component_interval: np.ndarray
    measure_interval: np.ndarray
    component_ratios: np.ndarray
    measure_ratios: np.ndarray
    component_reproducibility: np.ndarray
    measure_reproducibility: np.ndarray
    component_reproducibility_p: np.ndarray
    measure_reproducibility_p: np.ndarray
    rows: np.ndarray
    notes: tuple[str, ...]

    @property
    def table(self) -> dict[str, np.ndarray]:
        """One row per latent variable."""
        names = ("singular_values", "explained", "p", "correlation")
        halves = [
            f"{side}_reproducibility{end}"
            for side in ("component", "measure")
            for end in ("", "_p")
        ]
        number = np.arange(1, len(self.p) + 1)
        return {
            "latent_variable": number,
            **{name: getattr(self, name) for name in (*names, *halves)},
        }

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """One row per latent variable and variable of either side."""
        rows = []
        for side, names in (("component", self.components), ("measure", self.measures)):
            low, high = getattr(self, f"{side}_interval")
            for j in range(len(self.p)):
                rows.append(
                    {
                        "latent_variable": np.full(len(names), j + 1),
                        "side": np.array([side] * len(names)),
                        "variable": np.array(names),
                        "weight": getattr(self, f"{side}_weights")[:, j],
                        "bootstrap_ratio": getattr(self, f"{side}_ratios")[:, j],
                        "correlation": getattr(self, f"{side}_correlations")[:, j],
                        "ci_low": low[:, j],
                        "ci_high": high[:, j],
                    }
                )
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def plot(self, latent: int = 1) -> Any:
        """Plot correlations of components and measures with a latent variable, with intervals.

        Parameters
        ----------
        latent : int, default=1
            Number of the latent variable, from 1.

        Returns
        -------
        matplotlib.figure.Figure
        """
        if not 0 < latent <= len(self.p):
            raise ArgumentError("latent", latent, f"a whole number from 1 to {len(self.p)}")
        return plot_latent(self.variables, latent, self.explained[latent - 1], self.p[latent - 1])


def plot_latent(variables: Mapping[str, Any], latent: int, explained: float, p: float) -> Any:
    """The figure of `PLS.plot`, of the columns of `PLS.variables`."""
    from matplotlib.figure import Figure

    table = {name: np.asarray(values) for name, values in variables.items()}
    own = {
        side: (table["side"] == side) & (table["latent_variable"] == latent)
        for side in ("component", "measure")
    }
    figure = Figure(
        figsize=(9, 1.2 + 0.28 * max(rows.sum() for rows in own.values())), layout="constrained"
    )
    for axes, (side, rows) in zip(figure.subplots(1, 2), own.items(), strict=True):
        names, found, low, high = (
            table[name][rows] for name in ("variable", "correlation", "ci_low", "ci_high")
        )
        place = np.arange(len(names))
        sure = (low > 0) | (high < 0)
        axes.barh(place, found, color=np.where(sure, "#4477aa", "#bbbbbb"))
        if np.isfinite(low).all():
            axes.hlines(place, low, high, color="black", linewidth=1)
        axes.axvline(0, color="black", linewidth=0.8)
        shown = [verbatim(name if len(name) <= 30 else f"{name[:29]}…") for name in names.tolist()]
        axes.set_yticks(place, shown, fontsize=8)
        axes.invert_yaxis()
        other = "behaviour" if side == "component" else "components"
        axes.set_xlabel(f"correlation with the score of {other}", fontsize=8)
    chance = "" if np.isnan(p) else f", p = {p:.2g}"
    figure.suptitle(
        f"Latent variable {latent}: {100 * explained:.0f} % of the cross-correlation{chance}",
        fontsize=10,
    )
    return figure


def pls(
    loadings: Any,
    behaviour: Any,
    *,
    groups: Any = None,
    n_permutations: int = 5000,
    n_bootstrap: int = 2000,
    n_splits: int = 100,
    missing_covariates: str = "raise",
    random_state: int = 0,
) -> PLS:
    """Behavioural partial least squares: a singular value decomposition of the correlations of
    loadings and behaviour.

    Permutations and resamples keep groups together. Resamples are aligned with the sample
    (Procrustes) before their spread is computed.

    Parameters
    ----------
    loadings : array or data frame of shape (n_rows, n_components), or a fitted model
        Loadings; of a model, those of the fitted subjects.
    behaviour : dict or data frame
        Column → one number per row; participant_id and session_id are not used as behaviour.
    groups : str or sequence, default=None
        Column, or one value per row, of rows that belong together. Default: the rows of one
        participant_id.
    n_permutations, n_bootstrap : int, default=5000, 2000
        Numbers of permutations and resamples; 0 for none.
    n_splits : int, default=100
        Number of random halves whose patterns are compared; 0 for none.
    missing_covariates : {"raise", "skip"}, default="raise"
        Whether a missing measure is an error, or the row is left out.
    random_state : int, default=0
        Seed.

    Returns
    -------
    PLS

    Examples
    --------
    >>> import numpy as np, icofactor as ico
    >>> rng = np.random.default_rng(0)
    >>> trait = rng.normal(size=80)
    >>> loadings = rng.normal(size=(80, 4)) + np.outer(trait, [1, 0, 0, -1])
    >>> behaviour = {"memory": trait + rng.normal(size=80), "speed": rng.normal(size=80)}
    >>> found = ico.pls(loadings, behaviour, n_permutations=499, n_bootstrap=200)
    >>> bool(found.p[0] < 0.05), int(abs(found.measure_ratios[:, 0]).argmax())
    (True, 0)
    """
    check_parameters(n_permutations=n_permutations, n_bootstrap=n_bootstrap)
    seeds_of(random_state)  # refuses what is not one
    check_value("n_splits", n_splits, Whole(0))
    X, components, taken_out = loadings_of(loadings)
    table = rows_of(behaviour, len(X))
    labels, known = group_labels(groups, table, len(X), missing_covariates)
    grouping = (groups,) if isinstance(groups, str) else ()
    measures = [name for name in table if name not in (*_NAMES, *grouping)]
    if not measures:
        raise ArgumentError(
            "behaviour",
            Phrase("no column besides participant_id"),
            "a table with columns of numbers",
        )
    complete = complete_rows(table, measures, len(X), missing_covariates, "behaviour") & known
    rows = np.flatnonzero(complete)
    Y = np.stack([_numbers(name, table[name], rows) for name in measures], axis=1)
    if len(rows) < 10:
        raise ArgumentError(
            "behaviour", Phrase(f"{len(rows)} complete rows"), "known in at least 10 rows"
        )
    flat = [name for name, column in zip(measures, Y.T, strict=True) if np.ptp(column) == 0]
    if flat:
        raise ArgumentError(
            "behaviour", None, f"{{behaviour}}: {some(flat, 10)} has one value in all rows"
        )
    X = X[rows]
    gone = [name for name in measures if name in taken_out]
    notes = [
        f"{name}: the fit regressed it out of the maps, so nothing should correlate with it"
        for name in gone
    ]
    varies = np.ptp(X, axis=0) > 0
    if not varies.all():
        left = ", ".join(name for name, there in zip(components, varies, strict=True) if not there)
        notes.append(f"left out because their loadings do not vary: {left}")
        X, components = (
            X[:, varies],
            [name for name, there in zip(components, varies, strict=True) if there],
        )
    if len(rows) < len(complete):
        names = row_names(table, len(complete))
        left = ", ".join(names[i] for i in np.flatnonzero(~complete))
        notes.append(f"left out because a measure is missing: {left}")
    together = Groups.of(np.arange(len(rows)) if labels is None else labels[rows])
    return _Work(_standardized(X), _standardized(Y), together, int(random_state)).run(
        tuple(components), tuple(measures), rows, notes, n_permutations, n_bootstrap, n_splits
    )


@dataclass(frozen=True, eq=False)
class _Work:
    X: np.ndarray
    Y: np.ndarray
    groups: Groups
    seed: int

    def run(
        self,
        components: tuple[str, ...],
        measures: tuple[str, ...],
        rows: np.ndarray,
        notes: list[str],
        n_permutations: int,
        n_bootstrap: int,
        n_splits: int,
    ) -> PLS:
        X, Y = self.X, self.Y
        U, s, V = _decomposed(X, Y)
        A, B = X @ U, Y @ V
        repeated = self.groups.repeated
        exchange = Exchange(
            len(X), self.groups if repeated else None, not (repeated and self.groups.constant(Y))
        )
        if n_permutations and not exchange.enough:
            raise too_few_permutations("behaviour", "use {n_permutations=0}")
        permuted = [
            np.linalg.svd(_cross(X, Y[order]), compute_uv=False)
            for order in _chunks(exchange.batches(n_permutations, self.seed))
        ]
        nothing = np.full(len(s), np.nan)
        shares = np.square(s) / np.square(s).sum()
        boot = self._bootstrap(U, s, V, n_bootstrap)
        halves = self._halves(U, V, exchange, n_splits, min(n_permutations, _MOST_NULL_SPLITS))
        return PLS(
            components,
            measures,
            s,
            shares,
            p_of(s, np.concatenate(permuted)) if permuted else nothing,
            U,
            V,
            A,
            B,
            np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(A.T, B.T, strict=True)]),
            _correlations(X, B),
            _correlations(Y, A),
            *boot,
            *halves,
            rows,
            tuple(notes),
        )

    def _rng(self, *key: int) -> np.random.Generator:
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=key))

    def _bootstrap(
        self, U: np.ndarray, s: np.ndarray, V: np.ndarray, n: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Intervals of correlations and ratios of weights, of both sides."""
        if n < 2:
            one = [np.full(side.shape, np.nan) for side in (U, V)]
            return np.stack([one[0]] * 2), np.stack([one[1]] * 2), one[0], one[1]
        weights: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        correlations: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        members = [np.flatnonzero(self.groups.codes == g) for g in range(len(self.groups.sizes))]
        rng = self._rng(1)
        while len(weights[0]) < n:
            drawn = np.concatenate(
                [members[g] for g in rng.integers(len(members), size=len(members))]
            )
            X, Y = self.X[drawn], self.Y[drawn]
            if min(np.ptp(X, axis=0).min(), np.ptp(Y, axis=0).min()) == 0:
                continue  # a resample in which a variable has one value
            X, Y = _standardized(X), _standardized(Y)
            Ub, sb, Vb = _decomposed(X, Y)
            left, _, right = np.linalg.svd(Ub.T @ U + Vb.T @ V)
            turn = left @ right
            for found, side in zip(weights, (Ub, Vb), strict=True):
                found.append((side * sb) @ turn)
            for found, side, other in zip(
                correlations, (X, Y), (Y @ Vb @ turn, X @ Ub @ turn), strict=True
            ):
                found.append(_correlations(side, other))
        ratios: list[np.ndarray] = []
        for side, found in zip((U, V), weights, strict=True):
            spread = np.std(found, axis=0, ddof=1)
            ratios.append(np.divide(side * s, spread, out=np.zeros_like(side), where=spread > 0))
        intervals = [np.percentile(found, _INTERVAL, axis=0) for found in correlations]
        return intervals[0], intervals[1], ratios[0], ratios[1]

    def _halves(
        self, U: np.ndarray, V: np.ndarray, exchange: Exchange, n_splits: int, n_null: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Reproducibility of patterns in halves of the people: components, measures, and their p."""
        if not n_splits:
            nothing = np.full(U.shape[1], np.nan)
            return nothing, nothing, nothing, nothing
        n_groups = len(self.groups.sizes)
        first = (
            self._rng(2).permuted(np.tile(np.arange(n_groups), (n_splits, 1)), axis=1)
            < n_groups // 2
        )
        half = first[:, self.groups.codes].astype(np.float64)
        found = _agreement(half, self.X, self.Y, U, V)
        null = [
            _agreement(half, self.X, self.Y[row], *_decomposed(self.X, self.Y[row])[::2])
            for order in exchange.batches(n_null, self.seed + 1)
            for row in order
        ]
        if null:
            values = np.array(null)
            p = [p_of(found[side], values[:, side]) for side in (0, 1)]
        else:
            p = [np.full(U.shape[1], np.nan)] * 2
        return found[0], found[1], p[0], p[1]


def _agreement(
    half: np.ndarray, X: np.ndarray, Y: np.ndarray, U: np.ndarray, V: np.ndarray
) -> np.ndarray:
    """(2, r) mean over splits of the correlation of a pattern in two halves: of components, of
    measures.
    """
    (n, k), q = X.shape, Y.shape[1]
    products = (Y[:, :, None] * X[:, None, :]).reshape(n, q * k)
    first = (half @ products).reshape(-1, q, k)
    second = products.sum(axis=0).reshape(q, k) - first
    return np.stack(
        [
            _paired(np.swapaxes(first, 1, 2) @ V, np.swapaxes(second, 1, 2) @ V),
            _paired(first @ U, second @ U),
        ]
    )


def _paired(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Mean over the first axis of the correlation along the second; NaN where it has fewer than
    three values.
    """
    if a.shape[1] < 3:
        return np.full(a.shape[2], np.nan)
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    length = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.asarray(((a * b).sum(axis=1) / np.where(length > 0, length, 1)).mean(axis=0))


def _numbers(name: str, values: Any, rows: np.ndarray) -> np.ndarray:
    cells = [cell_text(values[i]) for i in rows]
    wrong = [cell for cell in cells if not is_number(cell)]
    if wrong:
        text = f"{{behaviour}}: column {literal(repr(name))} must contain numbers; found {literal(repr(wrong[0]))}"
        raise ArgumentError("behaviour", None, text)
    return np.array([float(cell) for cell in cells])


def _standardized(values: np.ndarray) -> np.ndarray:
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0, ddof=1))


def _cross(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """(..., q, k) correlations of standardized columns."""
    return np.asarray(np.swapaxes(Y, -1, -2) @ X / (len(X) - 1))


def _decomposed(X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U (k, r), s (r,), V (q, r) of the cross-correlation; the largest weight of each component
    pattern is positive.
    """
    V, s, Ut = np.linalg.svd(_cross(X, Y), full_matrices=False)
    U = Ut.T
    sign = np.sign(U[np.abs(U).argmax(axis=0), np.arange(U.shape[1])])
    return U * sign, s, V * sign


def _correlations(variables: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """(m, r) of standardized variables with scores."""
    centred = scores - scores.mean(axis=0)
    length = np.linalg.norm(centred, axis=0) * np.sqrt(len(variables) - 1)
    return np.asarray(
        np.divide(
            variables.T @ centred,
            length,
            out=np.zeros((variables.shape[1], scores.shape[1])),
            where=length > 0,
        )
    )


def _chunks(batches: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Smaller ones, whose copies of behaviour fit into a cache."""
    for batch in batches:
        for first in range(0, len(batch), _BATCH):
            yield batch[first : first + _BATCH]
