"""Least squares of many outcomes on one design, also with a random intercept per group.

    y = X β + u_g + e,   u_g ~ N(0, λσ²),  e ~ N(0, σ²)

λ is found by restricted maximum likelihood, one number per outcome; it is 0 without groups. Rows
whitened by V^(−1/2) = I − Σ_g (1 − 1/√(1 + λ n_g)) 1 1ᵀ/n_g make it ordinary least squares again.
Degrees of freedom are Satterthwaite's; those of several contrasts together are joined as lmerTest
does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize_scalar

# Ratios λ at which the likelihood is computed first, to find where its maximum lies.
_GRID = np.concatenate([[0.0], np.logspace(-4, 6, 41)])

# Ratios beyond these limits count as 0, and as the largest.
_SMALLEST_RATIO = 1e-6
_LARGEST_RATIO = 1e6

# The lower end of the search, whose logarithm must be finite.
_LOWEST_SEARCHED = 1e-8


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
        """Group the rows that have the same label."""
        _, codes, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
        return cls(codes.reshape(-1), sizes)

    @property
    def repeated(self) -> bool:
        """Whether any group has more than one row."""
        return bool((self.sizes > 1).any())

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Return (n_groups, ...) sums of rows."""
        total = np.zeros((len(self.sizes), *values.shape[1:]))
        np.add.at(total, self.codes, values)
        return total

    def constant(self, values: np.ndarray) -> bool:
        """Whether every column has one value within each group."""
        means = self.sums(values) / self.sizes[:, None]
        deviation = np.abs(values - means[self.codes]).max()
        return bool(deviation <= 1e-9 * max(1.0, np.abs(values).max()))

    def whiten(
        self,
        values: np.ndarray,
        ratio: float,
    ) -> np.ndarray:
        """Return V^(−1/2) values, at σ² = 1."""
        if ratio == 0:
            return values
        # Whitening shrinks the mean of each group, and leaves deviations from it.
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

    @property
    def t(self) -> np.ndarray:
        """(n_outcomes,) of a single contrast."""
        return np.sign(self.estimate) * np.sqrt(self.F)


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
    def fit(
        cls,
        X: np.ndarray,
        Y: np.ndarray,
        groups: Groups | None = None,
    ) -> Regression:
        """Fit all outcomes.

        Parameters
        ----------
        X : of full rank.
        Y : outcomes in columns.
        groups : with repeated rows; others make no difference.
        """
        n_rows, n_columns = X.shape
        n_outcomes = Y.shape[1]
        ratio = np.zeros(n_outcomes)
        if groups is not None and not groups.repeated:
            groups = None
        if groups is not None:
            ratio = _ratios(X, Y, groups)
        coefficients = np.empty((n_columns, n_outcomes))
        covariance = np.empty((n_outcomes, n_columns, n_columns))
        variance = np.empty(n_outcomes)
        # Outcomes of the same ratio share their whitened design: all of them without groups.
        for value in np.unique(ratio):
            outcomes = np.flatnonzero(ratio == value)
            X_white = X
            Y_white = Y[:, outcomes]
            if groups is not None:
                X_white = groups.whiten(X, value)
                Y_white = groups.whiten(Y_white, value)
            # Columns of very different size would lose digits.
            scale = np.linalg.norm(X_white, axis=0)
            Q, R = np.linalg.qr(X_white / scale)
            inverse = np.linalg.inv(R) / scale[:, None]
            beta = inverse @ (Q.T @ Y_white)
            residual = Y_white - X_white @ beta
            coefficients[:, outcomes] = beta
            variance[outcomes] = np.square(residual).sum(axis=0) / (n_rows - n_columns)
            covariance[outcomes] = variance[outcomes, None, None] * (inverse @ inverse.T)
        return cls(X, Y, groups, ratio, coefficients, covariance, variance)

    @property
    def residuals(self) -> np.ndarray:
        """(n_rows, n_outcomes) Y − X β."""
        return self.Y - self.X @ self.coefficients

    @property
    def deviation(self) -> np.ndarray:
        """(n_outcomes,) standard deviation of a row about its expectation, groups included."""
        return np.sqrt(self.variance * (1 + self.ratio))

    @property
    def intraclass(self) -> np.ndarray:
        """(n_outcomes,) share of the groups in that variance."""
        return self.ratio / (1 + self.ratio)

    def whitened(self, outcome: int) -> tuple[np.ndarray, np.ndarray]:
        """Return X and y of one outcome with independent rows."""
        y = self.Y[:, [outcome]]
        if self.groups is None:
            return self.X, y[:, 0]
        ratio = self.ratio[outcome]
        return self.groups.whiten(self.X, ratio), self.groups.whiten(y, ratio)[:, 0]

    def test(self, L: np.ndarray) -> Test:
        """Test L β = 0, where L is (n_contrasts, n_columns) of full rank."""
        n_contrasts = len(L)
        n_outcomes = self.Y.shape[1]
        F = np.full(n_outcomes, np.nan)
        df = np.full(n_outcomes, float(len(self.X) - self.X.shape[1]))
        value = L @ self.coefficients
        covariance = L @ self.covariance @ L.T
        for j in np.flatnonzero(self.variance > 0).tolist():
            # Along the axes of their covariance the contrasts are independent.
            sizes, axes = np.linalg.eigh(covariance[j])
            F[j] = np.sum((axes.T @ value[:, j]) ** 2 / sizes) / n_contrasts
            if self.ratio[j] > 0:
                df[j] = _joint_df(self._satterthwaite(j, axes.T @ L))
        estimate = np.full(n_outcomes, np.nan)
        se = np.full(n_outcomes, np.nan)
        if n_contrasts == 1:
            estimate = value[0]
            se = np.sqrt(covariance[:, 0, 0])
        return Test(F, n_contrasts, df, estimate, se)

    def _satterthwaite(
        self,
        j: int,
        L: np.ndarray,
    ) -> np.ndarray:
        """Return degrees of freedom of each contrast: 2 f² / (∇fᵀ Cov(σ², σ_g²) ∇f), f its variance.

        With A = V⁻¹, P = A − A X C Xᵀ A and V_a = I or Z Zᵀ, the observed information about (σ²,
        σ_g²) is yᵀP V_a P V_b P y − ½ tr(P V_a P V_b), as lmerTest has it; the expected one where
        that is not positive.
        """
        assert self.groups is not None
        groups = self.groups
        X = self.X
        C = self.covariance[j]
        sizes = groups.sizes
        # Eigenvalues of A: of deviations within a group, and of the mean of a group.
        within = 1 / self.variance[j]
        between = 1 / (self.variance[j] * (1 + self.ratio[j] * sizes))
        means = groups.sums(X) / sizes[:, None]
        deviations = X - means[groups.codes]

        def group_rows(power: int) -> np.ndarray:
            """Zᵀ A^power X."""
            return means * (between**power * sizes)[:, None]

        def product(power: int) -> np.ndarray:
            """Xᵀ A^power X."""
            return within**power * deviations.T @ deviations + group_rows(power).T @ means

        def trace(
            a: np.ndarray,
            b: np.ndarray,
        ) -> float:
            """tr(a b)."""
            return float(np.sum(a * b.T))

        XA2X = product(2)
        U = group_rows(1)
        UU = U.T @ U
        CXA2X = C @ XA2X
        CU = C @ UU
        # ½ tr(P V_a P V_b), a and b being e (errors) or g (groups).
        squares = float(((sizes - 1) * within**2 + between**2).sum())
        ee = squares - 2 * trace(C, product(3)) + trace(CXA2X, CXA2X)
        eg = (sizes * between**2).sum() - 2 * trace(C, U.T @ group_rows(2)) + trace(CXA2X, CU)
        leverage = ((U @ C) * U).sum(axis=1)
        gg = ((sizes * between) ** 2).sum() - 2 * float(leverage @ (sizes * between))
        gg += trace(CU, CU)
        expected = 0.5 * np.array([[ee, eg], [eg, gg]])
        share = (between - within) / sizes

        def A_times(values: np.ndarray) -> np.ndarray:
            return within * values + (groups.sums(values) * share[:, None])[groups.codes]

        # Columns V_a P y.
        Py = A_times(self.residuals[:, [j]])
        VPy = np.hstack([Py, groups.sums(Py)[groups.codes]])
        AVPy = A_times(VPy)
        XAVPy = X.T @ AVPy
        information = VPy.T @ AVPy - XAVPy.T @ C @ XAVPy - expected
        if np.linalg.eigvalsh(information).min() <= 1e-9 * np.abs(information).max():
            information = expected
        LC = L @ C
        f = (LC * L).sum(axis=1)
        gradient = np.stack([((LC @ XA2X) * LC).sum(axis=1), ((LC @ UU) * LC).sum(axis=1)])
        spread = (gradient * np.linalg.solve(information, gradient)).sum(axis=0)
        return 2 * f**2 / spread


def _joint_df(dfs: np.ndarray) -> float:
    """Return the degrees of freedom of several contrasts together, from those of each."""
    if len(dfs) == 1:
        return float(dfs[0])
    # The mean of F(1, df) is df / (df − 2): their sum tells the df of the joint F.
    usable = dfs[dfs > 2]
    expected = float((usable / (usable - 2)).sum())
    return 2 * expected / (expected - len(dfs)) if expected > len(dfs) else 2.0


def _ratios(
    X: np.ndarray,
    Y: np.ndarray,
    groups: Groups,
) -> np.ndarray:
    """Return λ of each outcome, which makes the restricted likelihood largest."""
    n_rows, n_columns = X.shape
    columns = np.hstack([X / np.linalg.norm(X, axis=0), Y])
    sums = groups.sums(columns)
    products = columns.T @ columns
    # Groups of equal size enter the likelihood alike.
    sizes = np.unique(groups.sizes)
    members = [groups.sizes == size for size in sizes]
    counts = np.array([rows.sum() for rows in members])
    group_products = np.array([sums[rows].T @ sums[rows] for rows in members])

    def criterion(ratio: float) -> np.ndarray:
        """−2 × the restricted log-likelihood, but for a constant, of every outcome."""
        S = products - np.tensordot(ratio / (1 + ratio * sizes), group_products, axes=1)
        log_V = float(counts @ np.log1p(ratio * sizes))
        XX = S[:n_columns, :n_columns]
        XY = S[:n_columns, n_columns:]
        YY = np.diag(S[n_columns:, n_columns:])
        rss = YY - (XY * np.linalg.solve(XX, XY)).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_rss = (n_rows - n_columns) * np.log(rss)
        return log_rss + log_V + np.linalg.slogdet(XX)[1]

    # The likelihood may have several maxima: search around the best of the grid.
    values = np.stack([criterion(ratio) for ratio in _GRID])
    ratios = np.zeros(Y.shape[1])
    # An outcome without variance has no likelihood: its ratio stays 0.
    for j in np.flatnonzero(np.isfinite(values).all(axis=0)).tolist():
        best = int(values[:, j].argmin())
        neighbours = _GRID[[max(best - 1, 0), min(best + 1, len(_GRID) - 1)]]
        peak = minimize_scalar(
            lambda log_ratio, j=j: float(criterion(float(np.exp(log_ratio)))[j]),
            bounds=np.log(np.maximum(neighbours, _LOWEST_SEARCHED)),
            method="bounded",
            options={"xatol": 1e-10},
        )
        ratio = float(np.exp(peak.x))
        # At the boundary the model is ordinary least squares.
        if ratio >= _SMALLEST_RATIO and values[0, j] > peak.fun:
            ratios[j] = min(ratio, _LARGEST_RATIO)
    return ratios
