"""Least squares, and least squares with a random intercept per group, of many outcomes on one
design.

    y = X β + u_g + e,   u_g ~ N(0, λσ²),  e ~ N(0, σ²)

λ is found by restricted maximum likelihood, one number per outcome; 0 without groups. Rows whitened
by
V^(−1/2) = I − Σ_g (1 − 1/√(1 + λ n_g)) 1 1ᵀ/n_g make it ordinary least squares again. Degrees of
freedom are Satterthwaite's; those of several contrasts together are joined as lmerTest does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

_MOST_RATIO = 1e6
_GRID = np.concatenate([[0.0], np.logspace(-4, 6, 41)])
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, eq=False)
class Groups:
    """Which rows belong together.

    Attributes
    ----------
    codes : (n_rows,) number of each row's group.
    sizes : (n_groups,)
    """

    codes: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray) -> Groups:
        _, codes, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
        return cls(codes.reshape(-1), sizes)

    @property
    def repeated(self) -> bool:
        """Whether any group has more than one row."""
        return bool((self.sizes > 1).any())

    def sums(self, values: np.ndarray) -> np.ndarray:
        """(n_groups, ...) sums of rows."""
        total = np.zeros((len(self.sizes), *values.shape[1:]))
        np.add.at(total, self.codes, values)
        return total

    def constant(self, values: np.ndarray) -> bool:
        """Whether every column has one value within each group."""
        means = self.sums(values) / self.sizes[:, None]
        return bool(
            np.abs(values - means[self.codes]).max() <= 1e-9 * max(1.0, np.abs(values).max())
        )

    def whiten(self, values: np.ndarray, ratio: float) -> np.ndarray:
        """V^(−1/2) values, at σ² = 1."""
        if ratio == 0:
            return values
        share = (1 - 1 / np.sqrt(1 + ratio * self.sizes)) / self.sizes
        return values - (self.sums(values) * share[:, None])[self.codes]


@dataclass(frozen=True, eq=False)
class Test:
    """A test of L β = 0, of every outcome.

    Attributes
    ----------
    F : (n_outcomes,) the statistic; t² of a single contrast.
    df, df_residual : of the numerator, and (n_outcomes,) of the denominator.
    estimate, se : (n_outcomes,) of a single contrast, else NaN.
    """

    F: np.ndarray
    df: int
    df_residual: np.ndarray
    estimate: np.ndarray
    se: np.ndarray


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted model of every outcome.

    Attributes
    ----------
    X : (n_rows, n_columns)
    Y : (n_rows, n_outcomes)
    groups : None for ordinary least squares.
    ratio : (n_outcomes,) λ.
    coefficients : (n_columns, n_outcomes)
    covariance : (n_outcomes, n_columns, n_columns) of the coefficients.
    variance : (n_outcomes,) σ²
    """

    X: np.ndarray
    Y: np.ndarray
    groups: Groups | None
    ratio: np.ndarray
    coefficients: np.ndarray
    covariance: np.ndarray
    variance: np.ndarray

    @classmethod
    def fit(cls, X: np.ndarray, Y: np.ndarray, groups: Groups | None = None) -> Regression:
        """
        Parameters
        ----------
        X : of full rank.
        groups : with repeated rows; else they make no difference.
        """
        (n, p), k = X.shape, Y.shape[1]
        if groups is not None and not groups.repeated:
            groups = None
        ratio = np.zeros(k) if groups is None else _ratios(X, Y, groups)
        coefficients, covariance, variance = np.empty((p, k)), np.empty((k, p, p)), np.empty(k)
        for value in np.unique(ratio):
            these = np.flatnonzero(ratio == value)
            Xw, Yw = (
                (X, Y) if groups is None else (groups.whiten(X, value), groups.whiten(Y, value))
            )
            scale = np.linalg.norm(Xw, axis=0)
            Q, R = np.linalg.qr(Xw / scale)
            inverse = np.linalg.inv(R) / scale[:, None]
            b = inverse @ (Q.T @ Yw[:, these])
            s2 = np.square(Yw[:, these] - Xw @ b).sum(axis=0) / (n - p)
            coefficients[:, these], variance[these] = b, s2
            covariance[these] = s2[:, None, None] * (inverse @ inverse.T)
        return cls(X, Y, groups, ratio, coefficients, covariance, variance)

    @property
    def residuals(self) -> np.ndarray:
        """(n_rows, n_outcomes) Y − X β."""
        return np.asarray(self.Y - self.X @ self.coefficients)

    @property
    def deviation(self) -> np.ndarray:
        """(n_outcomes,) standard deviation of a row about its expectation, between groups included."""
        return np.sqrt(self.variance * (1 + self.ratio))

    @property
    def intraclass(self) -> np.ndarray:
        """(n_outcomes,) share of the groups in that variance."""
        return self.ratio / (1 + self.ratio)

    def whitened(self, outcome: int) -> tuple[np.ndarray, np.ndarray]:
        """X and y of one outcome with independent rows."""
        if self.groups is None:
            return self.X, self.Y[:, outcome]
        whiten = self.groups.whiten
        return whiten(self.X, self.ratio[outcome]), whiten(
            self.Y[:, [outcome]], self.ratio[outcome]
        )[:, 0]

    def test(self, L: np.ndarray) -> Test:
        """
        Parameters
        ----------
        L : (n_contrasts, n_columns) of full rank.
        """
        q, k = len(L), self.Y.shape[1]
        F, df = np.full(k, np.nan), np.full(k, float(len(self.X) - self.X.shape[1]))
        value = L @ self.coefficients
        spread = L @ self.covariance @ L.T
        for j in np.flatnonzero(self.variance > 0).tolist():
            sizes, axes = np.linalg.eigh(spread[j])
            F[j] = np.sum((axes.T @ value[:, j]) ** 2 / sizes) / q
            if self.ratio[j] > 0:
                df[j] = _joint_df(self._satterthwaite(j, axes.T @ L))
        single = q == 1
        estimate = value[0] if single else np.full(k, np.nan)
        return Test(F, q, df, estimate, np.sqrt(spread[:, 0, 0]) if single else np.full(k, np.nan))

    def _satterthwaite(self, j: int, L: np.ndarray) -> np.ndarray:
        """Degrees of freedom of each contrast: 2 f² / (∇fᵀ Cov(σ², σ_g²) ∇f), f its variance.

        With A = V⁻¹, P = A − A X C Xᵀ A and V_a = I or Z Zᵀ, the observed information about (σ²,
        σ_g²) is
        yᵀP V_a P V_b P y − ½ tr(P V_a P V_b), as lmerTest has it; the expected one where that is
        not positive.
        """
        assert self.groups is not None
        groups, X, C = self.groups, self.X, self.covariance[j]
        s2, ratio, sizes = self.variance[j], self.ratio[j], self.groups.sizes
        within, between = (
            1 / s2,
            1 / (s2 * (1 + ratio * sizes)),
        )  # eigenvalues of A within a group, of its mean
        means = groups.sums(X) / sizes[:, None]
        deviations = X - means[groups.codes]
        power = lambda m: (  # Xᵀ A^m X, and rows Zᵀ A^m X
            within**m * deviations.T @ deviations
            + (means * (between**m * sizes)[:, None]).T @ means,
            means * (between**m * sizes)[:, None],
        )
        (XA2X, U2), (XA3X, _), (_, U) = power(2), power(3), power(1)
        CU = C @ (U.T @ U)
        tr = lambda a, b: float(np.sum(a * b.T))
        squares = float(((sizes - 1) * within**2 + between**2).sum())
        d, d2 = sizes * between, sizes * between**2
        ee = squares - 2 * tr(C, XA3X) + tr(C @ XA2X, C @ XA2X)
        eg = d2.sum() - 2 * tr(C, U.T @ U2) + tr(C @ XA2X, CU)
        gg = (d**2).sum() - 2 * float(((U @ C) * U).sum(axis=1) @ d) + tr(CU, CU)
        expected = 0.5 * np.array([[ee, eg], [eg, gg]])
        share = (between - within) / sizes
        A = lambda v: within * v + (groups.sums(v) * share[:, None])[groups.codes]
        Py = A(self.residuals[:, [j]])
        both = np.hstack([Py, groups.sums(Py)[groups.codes]])  # V_a P y
        AV = A(both)
        XAV = X.T @ AV
        information = both.T @ AV - XAV.T @ C @ XAV - expected
        if np.linalg.eigvalsh(information).min() <= 1e-9 * np.abs(information).max():
            information = expected
        LC = L @ C
        f = ((LC) * L).sum(axis=1)
        gradient = np.stack([((LC @ XA2X) * LC).sum(axis=1), ((LC @ (U.T @ U)) * LC).sum(axis=1)])
        spread = (gradient * np.linalg.solve(information, gradient)).sum(axis=0)
        return np.asarray(2 * f**2 / spread)


def _joint_df(each: np.ndarray) -> float:
    """Degrees of freedom of several contrasts together, from those of each."""
    if len(each) == 1:
        return float(each[0])
    usable = each[each > 2]
    expected = float((usable / (usable - 2)).sum())
    return 2 * expected / (expected - len(each)) if expected > len(each) else 2.0


def _ratios(X: np.ndarray, Y: np.ndarray, groups: Groups) -> np.ndarray:
    """λ of each outcome, which makes the restricted likelihood largest."""
    (n, p), sizes = X.shape, groups.sizes
    scale = np.linalg.norm(X, axis=0)
    both = np.hstack([X / scale, Y])
    sums = groups.sums(both)
    whole = both.T @ both
    classes = np.unique(sizes)
    parts = [
        (size, int((sizes == size).sum()), sums[sizes == size].T @ sums[sizes == size])
        for size in classes
    ]

    def criterion(ratio: float) -> np.ndarray:
        """−2 × the restricted log-likelihood, but for a constant, of every outcome."""
        S = whole - sum(ratio / (1 + ratio * size) * part for size, _, part in parts)
        log_V = sum(count * np.log1p(ratio * size) for size, count, _ in parts)
        solved = np.linalg.solve(S[:p, :p], S[:p, p:])
        rss = np.diag(S[p:, p:]) - (S[:p, p:] * solved).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((n - p) * np.log(rss) + log_V + np.linalg.slogdet(S[:p, :p])[1])

    def at(log_ratio: float, outcome: int) -> float:
        return float(criterion(float(np.exp(log_ratio)))[outcome])

    values = np.stack([criterion(ratio) for ratio in _GRID])
    found = np.zeros(Y.shape[1])
    for j in range(Y.shape[1]):
        if not np.isfinite(values[:, j]).all():
            continue  # an outcome without variance
        best = int(values[:, j].argmin())
        low, high = (
            np.log(max(_GRID[max(0, min(i, len(_GRID) - 1))], 1e-8)) for i in (best - 1, best + 1)
        )
        peak = minimize_scalar(
            at, bounds=(low, high), args=(j,), method="bounded", options={"xatol": 1e-10}
        )
        ratio = float(np.exp(peak.x))
        found[j] = (
            0.0 if ratio < _NEGLIGIBLE or values[0, j] <= peak.fun else min(ratio, _MOST_RATIO)
        )
    return found
