"""Behavioural partial least squares: patterns of components that go with patterns of behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import orthogonal_procrustes

from icofactor.assessment.associations.exchange import Exchange, p_of, permuted
from icofactor.assessment.associations.loadings import read_loadings
from icofactor.assessment.associations.regression import Groups
from icofactor.assessment.associations.tables import (
    GroupLabels,
    Table,
    complete_rows,
    group_labels,
    names_where,
    read_columns,
    repeated_groups,
    take_rows,
)
from icofactor.assessment.selection.choice import verbatim
from icofactor.checks import Whole, check_parameters, check_value
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, shown
from icofactor.factorization.starts import seeds_of
from icofactor.io.tables import cell_text, is_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from icofactor.estimator.estimator import CorticalFactorization

# Columns that name the rows, and are no behaviour.
_NAMES = ("participant_id", "session_id")

# Percentiles of the intervals over resamples.
_INTERVAL = (2.5, 97.5)

# Permutations whose halves are compared: each is decomposed in as many halves as the data are.
_MAX_NULL_SPLITS = 200

# Correlations of fewer people say nothing.
_MIN_ROWS = 10


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
    >>> settings = {"n_permutations": 99, "n_bootstrap": 50, "n_splits": 5}
    >>> patterns = ico.pls(rng.normal(size=(40, 3)), behaviour, **settings)
    >>> patterns.component_weights.shape, patterns.measures
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
        names = [
            "singular_values",
            "explained",
            "p",
            "correlation",
            "component_reproducibility",
            "component_reproducibility_p",
            "measure_reproducibility",
            "measure_reproducibility_p",
        ]
        number = np.arange(1, len(self.p) + 1)
        return {"latent_variable": number, **{name: getattr(self, name) for name in names}}

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """One row per latent variable and variable of either side."""
        tables = []
        for side, names in (("component", self.components), ("measure", self.measures)):
            low, high = getattr(self, f"{side}_interval")
            for latent in range(len(self.p)):
                columns = {
                    "weight": getattr(self, f"{side}_weights"),
                    "bootstrap_ratio": getattr(self, f"{side}_ratios"),
                    "correlation": getattr(self, f"{side}_correlations"),
                    "ci_low": low,
                    "ci_high": high,
                }
                rows = {
                    "latent_variable": np.full(len(names), latent + 1),
                    "side": np.array([side] * len(names)),
                    "variable": np.array(names),
                }
                tables.append(rows | {name: values[:, latent] for name, values in columns.items()})
        return {name: np.concatenate([rows[name] for rows in tables]) for name in tables[0]}

    def plot(self, latent: int = 1) -> Figure:
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
            raise ArgumentError(
                "latent", f"must be a whole number from 1 to {len(self.p)}; found {shown(latent)}"
            )
        return plot_latent(self.variables, latent, self.explained[latent - 1], self.p[latent - 1])


def plot_latent(
    variables: Mapping[str, ArrayLike],
    latent: int,
    explained: float,
    p: float,
) -> Figure:
    """Plot a latent variable as `PLS.plot` does, from the columns of `PLS.variables`."""
    from matplotlib.figure import Figure

    table = {name: np.asarray(values) for name, values in variables.items()}
    sides = {"component": "behaviour", "measure": "components"}
    rows = [(table["side"] == side) & (table["latent_variable"] == latent) for side in sides]
    height = 1.2 + 0.28 * max(side_rows.sum() for side_rows in rows)
    figure = Figure(figsize=(9, height), layout="constrained")
    panels = zip(figure.subplots(1, 2), rows, sides.values(), strict=True)
    for axes, side_rows, opposite in panels:
        _plot_bars(axes, {name: column[side_rows] for name, column in table.items()})
        axes.set_xlabel(f"correlation with the score of {opposite}", fontsize=8)
    title = f"Latent variable {latent}: {100 * explained:.0f} % of the cross-correlation"
    if not np.isnan(p):
        title += f", p = {p:.2g}"
    figure.suptitle(title, fontsize=10)
    return figure


def _plot_bars(
    axes: Axes,
    table: Mapping[str, np.ndarray],
) -> None:
    """Plot correlations as bars, grey where the interval contains 0."""
    position = np.arange(len(table["variable"]))
    low = table["ci_low"]
    high = table["ci_high"]
    # Unknown intervals, without resamples, are grey, too.
    colours = np.where((low > 0) | (high < 0), "#4477aa", "#bbbbbb")
    axes.barh(position, table["correlation"], color=colours)
    # Without resamples there are no intervals.
    if np.isfinite(low).all():
        axes.hlines(position, low, high, color="black", linewidth=1)
    axes.axvline(0, color="black", linewidth=0.8)
    names = [name if len(name) <= 30 else f"{name[:29]}…" for name in table["variable"].tolist()]
    axes.set_yticks(position, list(map(verbatim, names)), fontsize=8)
    axes.invert_yaxis()


def pls(
    loadings: ArrayLike | CorticalFactorization,
    behaviour: Table,
    *,
    groups: GroupLabels = None,
    n_permutations: int = 5000,
    n_bootstrap: int = 2000,
    n_splits: int = 100,
    missing_covariates: str = "raise",
    random_state: int = 0,
) -> PLS:
    """Find patterns of components that go with patterns of behaviour.

    Behavioural partial least squares: a singular value decomposition of the correlations of
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
    >>> patterns = ico.pls(loadings, behaviour, n_permutations=499, n_bootstrap=200)
    >>> bool(patterns.p[0] < 0.05), int(abs(patterns.measure_ratios[:, 0]).argmax())
    (True, 0)
    """
    check_parameters(n_permutations=n_permutations, n_bootstrap=n_bootstrap)
    seeds_of(random_state)  # refuses what is no seed
    check_value("n_splits", n_splits, Whole(0))
    outcomes = read_loadings(loadings)
    n_rows = len(outcomes.values)
    table = read_columns(behaviour, n_rows)
    measures = [name for name in table if name not in (*_NAMES, groups)]
    labels, complete = group_labels(groups, table, n_rows, missing_covariates)
    complete &= complete_rows(table, measures, n_rows, missing_covariates, "behaviour")
    rows = np.flatnonzero(complete)
    Y = _behaviour_of(take_rows(table, rows), measures)
    X = outcomes.values[rows]
    varies = np.ptp(X, axis=0) > 0
    components = [name for name, keep in zip(outcomes.names, varies, strict=True) if keep]
    notes = [
        f"{name}: the fit regressed it out of the maps, so nothing should correlate with it"
        for name in measures
        if name in outcomes.regressed_out
    ]
    if not varies.all():
        flat = [name for name in outcomes.names if name not in components]
        notes.append(f"left out because their loadings do not vary: {', '.join(flat)}")
    if not complete.all():
        missing = names_where(table, ~complete)
        notes.append(f"left out because a measure is missing: {missing}")
    X = _standardized(X[:, varies])
    Y = _standardized(Y)
    seed = int(random_state)
    row_groups = repeated_groups(labels[rows])
    # Loadings stay, and behaviour changes places: people who are exchanged keep all of theirs.
    exchange = Exchange.testing(Y, row_groups)
    if n_permutations:
        exchange.check("behaviour")
    U, s, V = _decompose(X, Y)
    # People, or rows that stand alone, are what resamples and halves draw.
    units = Groups.of(labels[rows])
    interval, ratios = _bootstrap(X, Y, units, n_bootstrap, seed)
    agreement, agreement_p = _reproducibility(
        X, Y, _halves(units, n_splits, seed), exchange, min(n_permutations, _MAX_NULL_SPLITS), seed
    )
    n_components = len(components)
    component_scores = X @ U
    measure_scores = Y @ V
    score_pairs = zip(component_scores.T, measure_scores.T, strict=True)
    return PLS(
        components=tuple(components),
        measures=tuple(measures),
        singular_values=s,
        explained=np.square(s) / np.square(s).sum(),
        p=_p_of_singular_values(X, Y, exchange, n_permutations, seed),
        component_weights=U,
        measure_weights=V,
        component_scores=component_scores,
        measure_scores=measure_scores,
        correlation=np.array([np.corrcoef(a, b)[0, 1] for a, b in score_pairs]),
        component_correlations=_correlations(X, measure_scores),
        measure_correlations=_correlations(Y, component_scores),
        component_interval=interval[:, :n_components],
        measure_interval=interval[:, n_components:],
        component_ratios=ratios[:n_components],
        measure_ratios=ratios[n_components:],
        component_reproducibility=agreement[0],
        measure_reproducibility=agreement[1],
        component_reproducibility_p=agreement_p[0],
        measure_reproducibility_p=agreement_p[1],
        rows=rows,
        notes=tuple(notes),
    )


def _p_of_singular_values(
    X: np.ndarray,
    Y: np.ndarray,
    exchange: Exchange,
    n_permutations: int,
    seed: int,
) -> np.ndarray:
    """Return p by permutation of behaviour; NaN without permutations."""

    def singular_values(orders: np.ndarray) -> np.ndarray:
        # One order at a time: the copies of behaviour then fit into a cache.
        cross = [_cross(X, Y[order]) for order in orders]
        return np.stack([np.linalg.svd(matrix, compute_uv=False) for matrix in cross])

    _, s, _ = _decompose(X, Y)
    if not n_permutations:
        return np.full(len(s), np.nan)
    return p_of(s, permuted(singular_values, exchange, n_permutations, seed))


def _reproducibility(
    X: np.ndarray,
    Y: np.ndarray,
    halves: np.ndarray,
    exchange: Exchange,
    n_permutations: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the agreement of patterns in halves, of components and measures, and its p."""

    def agreements(orders: np.ndarray) -> np.ndarray:
        return np.stack([_agreement(halves, X, Y[order]) for order in orders])

    unknown = np.full((2, min(X.shape[1], Y.shape[1])), np.nan)
    if not len(halves):
        return unknown, unknown
    observed = _agreement(halves, X, Y)
    if not n_permutations:
        return observed, unknown
    # The next seed: these permutations must not be those of the singular values.
    null = permuted(agreements, exchange, n_permutations, seed + 1)
    return observed, np.stack([p_of(observed[side], null[:, side]) for side in (0, 1)])


def _behaviour_of(
    table: Table,
    measures: Sequence[str],
) -> np.ndarray:
    """Return the columns of behaviour as numbers, rows × measures."""
    texts = {name: [cell_text(cell) for cell in table[name]] for name in measures}
    n_rows = min(map(len, texts.values()), default=0)
    if n_rows < _MIN_ROWS:
        raise ArgumentError(
            "behaviour",
            f"must have columns of numbers besides participant_id, all known in at least "
            f"{_MIN_ROWS} rows; found {len(measures)} columns, known in {n_rows} rows",
        )
    for name, cells in texts.items():
        # A constant column has no correlations.
        if not all(map(is_number, cells)) or len(set(map(float, cells))) == 1:
            raise ArgumentError(
                "behaviour",
                f"column {shown(name)} must contain different numbers; found {some(cells, 3)}",
            )
    return np.array([list(map(float, cells)) for cells in texts.values()]).T


def _bootstrap(
    X: np.ndarray,
    Y: np.ndarray,
    groups: Groups,
    n_resamples: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return intervals of correlations and bootstrap ratios of weights over resamples of people.

    Their rows are the components, and then the measures.
    """
    U, s, V = _decompose(X, Y)
    weights = np.vstack([U, V])
    if n_resamples < 2:
        return np.full((2, *weights.shape), np.nan), np.full(weights.shape, np.nan)
    scaled_weights = []
    correlations = []
    for X_drawn, Y_drawn in _resamples(X, Y, groups, n_resamples, seed):
        U_drawn, s_drawn, V_drawn = _decompose(X_drawn, Y_drawn)
        # Latent variables may change places, signs and axes: rotate them to those of the sample.
        drawn = np.vstack([U_drawn, V_drawn])
        rotation, _ = orthogonal_procrustes(drawn, weights)
        scaled_weights.append((drawn * s_drawn) @ rotation)
        of_components = _correlations(X_drawn, Y_drawn @ V_drawn @ rotation)
        of_measures = _correlations(Y_drawn, X_drawn @ U_drawn @ rotation)
        correlations.append(np.vstack([of_components, of_measures]))
    error = np.std(scaled_weights, axis=0, ddof=1)
    ratios = np.divide(weights * s, error, out=np.zeros_like(weights), where=error > 0)
    return np.percentile(correlations, _INTERVAL, axis=0), ratios


def _resamples(
    X: np.ndarray,
    Y: np.ndarray,
    groups: Groups,
    n_resamples: int,
    seed: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield loadings and behaviour of groups drawn with replacement, standardized."""
    rng = _generator(seed, 1)
    n_groups = len(groups.sizes)
    members = [np.flatnonzero(groups.codes == group) for group in range(n_groups)]
    n_yielded = 0
    while n_yielded < n_resamples:
        drawn = np.concatenate([members[g] for g in rng.integers(n_groups, size=n_groups)])
        # A resample in which a variable has one value has no correlations.
        if min(np.ptp(X[drawn], axis=0).min(), np.ptp(Y[drawn], axis=0).min()) > 0:
            n_yielded += 1
            yield _standardized(X[drawn]), _standardized(Y[drawn])


def _halves(
    groups: Groups,
    n_splits: int,
    seed: int,
) -> np.ndarray:
    """Return (n_splits, n_rows) 1 for the rows in the first half of the groups, else 0."""
    n_groups = len(groups.sizes)
    order = _generator(seed, 2).permuted(np.tile(np.arange(n_groups), (n_splits, 1)), axis=1)
    return (order < n_groups // 2)[:, groups.codes].astype(np.float64)


def _generator(
    seed: int,
    use: int,
) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(use,)))


def _agreement(
    halves: np.ndarray,
    X: np.ndarray,
    Y: np.ndarray,
) -> np.ndarray:
    """Return (2, r) mean correlations, over splits, of a pattern in two halves.

    The first row is of the patterns of components, the second of those of measures.
    """
    # Patterns of the complete sample, projected on the cross-products of both halves.
    U, _, V = _decompose(X, Y)
    n_rows, n_components = X.shape
    # Cross-products of one half are sums over its people, and the other half has what is missing.
    products = (Y[:, :, None] * X[:, None, :]).reshape(n_rows, -1)
    shape = (-1, Y.shape[1], n_components)
    first = (halves @ products).reshape(shape)
    second = products.sum(axis=0).reshape(shape[1:]) - first
    components = _mean_correlation(np.swapaxes(first, 1, 2) @ V, np.swapaxes(second, 1, 2) @ V)
    measures = _mean_correlation(first @ U, second @ U)
    return np.stack([components, measures])


def _mean_correlation(
    a: np.ndarray,
    b: np.ndarray,
) -> np.ndarray:
    """Return the mean over the first axis of the correlation along the second."""
    if a.shape[1] < 3:  # two values always correlate by ±1
        return np.full(a.shape[2], np.nan)
    a = a - a.mean(axis=1, keepdims=True)
    b = b - b.mean(axis=1, keepdims=True)
    # Patterns that are constant have no correlation: count it as 0.
    length = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    correlation = (a * b).sum(axis=1) / np.where(length > 0, length, 1)
    return correlation.mean(axis=0)


def _standardized(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(axis=0)) / values.std(axis=0, ddof=1)


def _cross(
    X: np.ndarray,
    Y: np.ndarray,
) -> np.ndarray:
    """Return (q, k) correlations of standardized columns."""
    return Y.T @ X / (len(X) - 1)


def _decompose(
    X: np.ndarray,
    Y: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return U (k, r), s (r,) and V (q, r) of the cross-correlation.

    The largest weight of each pattern of components is positive.
    """
    V, s, Ut = np.linalg.svd(_cross(X, Y), full_matrices=False)
    # Singular vectors have no sign of their own.
    largest = np.abs(Ut).argmax(axis=1)
    sign = np.sign(Ut[np.arange(len(Ut)), largest])
    return Ut.T * sign, s, V * sign


def _correlations(
    variables: np.ndarray,
    scores: np.ndarray,
) -> np.ndarray:
    """Return (m, r) correlations of standardized variables with scores; 0 for constant scores."""
    centred = scores - scores.mean(axis=0)
    length = np.linalg.norm(centred, axis=0) * np.sqrt(len(variables) - 1)
    return variables.T @ centred / np.where(length > 0, length, np.inf)
