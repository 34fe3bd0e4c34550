"""What all schemes share: the problem in one array library, the error (eq. 1), and `Scheme`, what a
scheme declares.

Shapes: B is (..., n_k, n_d), C is (..., n_d, n_subjects); the leading axes are a batch of
    independent starts.
Functions are pure: nothing is written in place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.errors import ArgumentError, literal
from icofactor.factorization.arrays import Array, T, dot, matmul_shared, namespace, product, ratio
from icofactor.factorization.extrapolation import EXTRAPOLATIONS, PLAIN_UPDATES, Extrapolation
from icofactor.factorization.quadratic import Quadratic, minimise
from icofactor.factorization.statistics import Statistics
from icofactor.streaming.blocks import cut
from icofactor.streaming.runners import in_order

RULES = ("paper", "default")
PEOPLE = 8192
"""Of so many people M = LᵀL is formed at a time, on all processors; the same on every machine."""
LEE_SEUNG = (
    "Lee DD, Seung HS. Algorithms for non-negative matrix factorization. Advances in Neural Information Processing "
    "Systems 13, 556-562 (2000)."
)
CICHOCKI = (
    "Cichocki A, Zdunek R, Phan AH, Amari S. Nonnegative Matrix and Tensor Factorizations: Applications to Exploratory "
    "Multi-way Data Analysis and Blind Source Separation. Wiley (2009)."
)


@dataclass(frozen=True, eq=False)
class Problem:
    """Statistics, penalty and rules as the updates see them.

    Attributes
    ----------
    L : (n_subjects, n_k) array
    K : (n_k,) array when diagonal; else a (n_k, n_k) array, or a scipy.sparse matrix when L is a
        NumPy array
    row_sums : (n_k,) array, κ = K·1
    weights : (n_k, 1) array, the weight of each row of B in the penalty (ones under paper rules)
    penalty : float, λ
    sq_norm : float, ‖X‖²
    L_norm : float, ‖L‖_F of the L at hand
    literal : bool, whether the rules are the paper's
    signed : bool, whether L has negative entries
    scale : float, the size of X relative to `statistics.REFERENCE_SIZE`; 1 under paper rules
    """

    L: Array
    K: Array
    row_sums: Array
    weights: Array
    penalty: float
    sq_norm: float
    L_norm: float
    literal: bool
    signed: bool = False
    scale: float = 1.0

    @classmethod
    def of(
        cls,
        stats: Statistics,
        scheme: Scheme,
        rules: str = "default",
        penalty: str | float = "paper",
    ) -> Problem:
        """The problem that `scheme` poses to `stats`; rules and penalty are checked already."""
        by_letter = rules == "paper"
        L = stats.L
        K: Array
        row_sums = None
        if stats.is_diagonal:
            K = row_sums = stats.K.diagonal()
        elif stats.n_columns > 64 and stats.K.nnz < 0.2 * stats.n_columns**2:
            K = stats.K  # sparse products pay for themselves
        else:
            K = stats.K.toarray()
        return cls(
            L,
            K,
            np.asarray(stats.K.sum(axis=1)).ravel() if row_sums is None else row_sums,
            (np.ones(stats.n_columns) if by_letter else stats.weights)[:, None],
            penalty_of(stats, scheme, rules, penalty),
            stats.sq_norm,
            frobenius(L),
            by_letter,
            bool(L.min() < 0),
            1.0 if by_letter else stats.scale,
        )

    def compact(self) -> Problem:
        """The same problem with no more rows in L than it has columns: another L with the same M =
        LᵀL.
        """
        some = cut(len(self.L), PEOPLE)
        return replace(
            self, L=square_root(sum(in_order(lambda rows: self.L[rows].T @ self.L[rows], some)))
        )

    def times_K(self, B: Array) -> Array:
        """K B."""
        if sp.issparse(self.K):
            if B.ndim == 2:
                return self.K @ B
            flat = np.moveaxis(B, -2, 0).reshape(B.shape[-2], -1)
            return np.moveaxis(
                (self.K @ flat).reshape(B.shape[-2], *B.shape[:-2], B.shape[-1]), 0, -2
            )
        return self.K[:, None] * B if self.K.ndim == 1 else self.K @ B

    def gram(self, B: Array) -> Array:
        """G = BᵀKB."""
        return product(T(B), self.times_K(B))

    def project(self, B: Array) -> Array:
        """BᵀLᵀ."""
        return matmul_shared(T(B), T(self.L))


def square_root(M: Any) -> np.ndarray:
    """L with as many rows as columns, and LᵀL = M."""
    values, vectors = np.linalg.eigh(M)
    return np.ascontiguousarray((vectors * np.sqrt(np.maximum(values, 0.0))).T)


class Terms(NamedTuple):
    """The products of the factors that the error and the next update share."""

    LC: Array
    """LᵀCᵀ, (..., n_k, n_d)."""
    CC: Array
    """CCᵀ, (..., n_d, n_d)."""
    G: Array
    """BᵀKB, (..., n_d, n_d)."""


def terms_of(p: Problem, B: Array, C: Array, G: Array | None = None) -> Terms:
    """The shared products at (B, C); G may be given when it is known already."""
    return Terms(T(matmul_shared(C, p.L)), C @ T(C), p.gram(B) if G is None else G)


def error(p: Problem, B: Array, t: Terms) -> Array:
    """E = ‖X − DBC‖² = ‖X‖² − 2⟨LᵀCᵀ, B⟩ + ⟨G, CCᵀ⟩ (eq. 1; eq. 9 is the same with C = BᵀLᵀ)."""
    return p.sq_norm - 2 * dot(t.LC, B) + dot(t.G, t.CC)


@dataclass(frozen=True)
class SchemeText:
    """What a scheme says about itself in the methods paragraph, tables and plots.

    Attributes
    ----------
    name : the scheme written out, as in "sparse dictionary learning"
    objective : what it minimises, in the letters X (sites × subjects), W (basis), C (loadings) and
        λ
    references : full references of the scheme
    updates : how the updates are made, where that needs saying: follows the word "updates"
    update_references : full references of the updates
    starts : what the random starts are, where that needs saying: follows their number
    start_references : full references of the starts
    """

    name: str
    objective: str
    references: tuple[str, ...]
    updates: str = ""
    update_references: tuple[str, ...] = ()
    starts: str = ""
    start_references: tuple[str, ...] = ()


class Scheme(ABC):
    """One factorization scheme X ≈ D B C: its mathematics, and everything that others need to know
    of it.

    A new scheme is one file in this folder with one subclass, and one line in
    `schemes/__init__.py`. Nothing else asks for its name: estimator, engines, lift, selection,
    bootstrap, report and command line read the attributes below.

    The mathematics are pure functions over an array namespace, with leading batch axes (see this
    module's docstring). Write them with the functions of `arrays` and they run on NumPy and JAX;
    otherwise set `jax = False`.

    To write: `draw`, `settle`, `update_B`, `update_C`, `objective`, `paper_penalty`, `name` and
    `text`. With free non-negative factors `NonNegativeScheme` has the start, with ½E + λ(‖B‖₁ +
    ‖C‖₁) `AbsoluteScheme` has the objective. Everything else has a default.
    """

    name: str
    """How it is called; methods are named by an extrapolation's prefix and this."""
    text: SchemeText
    """What the methods paragraph says."""

    # ------------------------------------------------------------------ what data and factors may
    # be
    signed_data = False
    """Whether X may hold negative values; where not, they are refused with a list of methods that
    take them.
    """
    signed_maps = False
    """Whether B may be negative, and with it the basis maps."""
    signed_loadings = False
    """Whether C may be negative."""
    projective = False
    """Whether C is not free but the projection BᵀLᵀ; loadings are then WᵀX, and only B is
    extrapolated.
    """
    penalised = True
    """Whether there is a penalty λ; where not, λ is 0 and any other number is refused."""
    penalty_degree = 1.5
    """For X times c, λ times c to this power gives the same maps and loadings, times √c each: 1.5
    for absolute values, 1 for squares.
    """
    scaled = True
    """Whether components are reported at the scale at which loadings have a root mean square of 1
    and maps are in the data's units. Where not, they stay as the scheme has them.
    """

    centers: tuple[str, ...] = ("none",)
    """What may be taken out of each site before the fit, `center="auto"` first: "none", "mean" or
    "zscore".
    """

    # ------------------------------------------------------------------ updates and engines
    in_paper = False
    """Whether the paper has it. Others are refused under paper rules, and need no code for
    `Problem.literal`.
    """
    extrapolations: Mapping[str, Extrapolation | None] = MappingProxyType({"": None})
    """Prefix of the method's name → extrapolation (None: plain updates); one method for each."""
    plain_updates = PLAIN_UPDATES
    """Updates at the start of a run that are not extrapolated."""
    n_starts = 10
    """Starts by default."""
    n_finished: int | None = None
    """Of the starts drawn, how many are run, those with the lowest objective; None: all."""
    plateau = True
    """Whether random starts begin on a plateau, on which a run must not be taken for settled."""
    first_look = 100
    """The first update at which `tol` may end a run."""
    sweeps = 0
    """Sweeps of coordinate descent per update, 0 for other updates. Sweeps walk through the
    components one by one: few updates are needed, and interpreted code and GPUs are slow at them.
    """
    kernel: str | None = None
    """Name of the same updates in compiled code (`engines.kernels.UPDATES`); None: NumPy runs it.
    """
    jax = True
    """Whether JAX can trace the functions; where not, NumPy runs it."""
    divergence_advice = ""
    """What to do when a run under paper rules leaves the finite numbers, if more can be said than
    the usual.
    """

    # ------------------------------------------------------------------ full resolution
    refined = True
    """Whether faces are divided after the starts, unless told otherwise."""
    lift_sweeps = 5
    """Sweeps of coordinate descent on each `site_problem`."""

    def kernel_for(self, p: Problem) -> str | None:
        """The kernel with the updates for this problem, where they are not the same for all
        problems.
        """
        return self.kernel

    def compactable(self, p: Problem) -> bool:
        """Whether people can be left out of the updates: objective and start depend on L only
        through M = LᵀL, and there are more people than faces.
        """
        known = self.projective and not p.literal and (p.signed or self.centers[0] == "none")
        return known and isinstance(p.L, np.ndarray) and p.L.shape[0] > p.L.shape[1]

    @property
    def takes_deviations(self) -> bool:
        """Whether statistics may be signed: those of signed data, or of deviations from the mean."""
        return self.signed_data or len(self.centers) > 1

    @abstractmethod
    def paper_penalty(self, L_norm: float) -> float:
        """λ as the paper has it; of what `penalty="paper"` means see `penalty_of`."""

    @abstractmethod
    def draw(
        self,
        rng: np.random.Generator,
        L: np.ndarray,
        row_sums: np.ndarray,
        n_components: int,
        literal: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """One random start (method.md §4), always in NumPy, before `settle`."""

    def draw_many(
        self,
        streams: Sequence[np.random.Generator],
        L: np.ndarray,
        row_sums: np.ndarray,
        n_components: int,
        literal: bool,
        n_best: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Draw several starts as one batch, each from its own stream.

        `n_best` is how many of them are wanted at least, for schemes that keep only the best.
        """
        B, C = zip(
            *(self.draw(rng, L, row_sums, n_components, literal) for rng in streams), strict=True
        )
        return np.stack(B), np.stack(C)

    @abstractmethod
    def settle(self, p: Problem, B: Array, C: Array) -> tuple[Array, Array]:
        """A drawn start made ready: scaled and balanced under default rules."""

    @abstractmethod
    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        """The plain update of B."""

    @abstractmethod
    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        """The plain update of C, from the new B and its G."""

    @abstractmethod
    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        """The objective, given the error E at (B, C). Under default rules updates must not raise
        it.
        """

    def balance(self, p: Problem, B: Array, C: Array) -> Array | None:
        """Factors s, (..., 1, n_d): B·s and C/s leave E as it is and make the penalty least. None:
        no balance.
        """
        return None

    def split_penalty(self, penalty: float) -> tuple[float, float]:
        """λ as (ridge, lasso) weights of ½‖x − Cᵀb‖² + ½ ridge ‖b‖² + lasso ‖b‖₁, for the lift and
        transform.
        """
        return 0.0, penalty

    def site_problem(
        self, C: np.ndarray, G: np.ndarray | None, penalty: float, site_weight: float
    ) -> Quadratic:
        """What each site solves for its row of W, given the loadings C and the coarse G = BᵀKB
        (None where it is not known): its values x over the subjects enter as `linear @ x`. In the
        penalty a site weighs `site_weight`.
        """
        ridge, lasso = (amount * site_weight for amount in self.split_penalty(penalty))
        return Quadratic(C @ C.T + ridge * np.eye(len(C)), C, lasso, self.signed_maps)

    def loadings_of(self, WX: np.ndarray, WW: np.ndarray, penalty: float) -> np.ndarray:
        """Loadings of subjects, n_d × subjects, with the basis fixed, from WᵀX and WᵀW: the
        projection, or the convex problem in C that the objective leaves. Used for the fitted
        subjects after the lift and for new ones alike.
        """
        if self.projective:
            return WX
        ridge, lasso = self.split_penalty(penalty)
        return minimise(WW + ridge * np.eye(len(WW)), WX, lasso, self.signed_loadings)


def best_scale(p: Problem, B: Array, C: Array) -> Array:
    """The scalar s, (..., 1, 1), that minimises E at (sB, C); 1 where B or C is zero."""
    t = terms_of(p, B, C)
    s = ratio(dot(t.LC, B), dot(t.G, t.CC))
    return np.where(s > 0, s, 1.0)[..., None, None]


class NonNegativeScheme(Scheme):
    """A scheme with free factors B, C ≥ 0: how it starts."""

    extrapolations: Mapping[str, Extrapolation | None] = EXTRAPOLATIONS

    def draw(
        self,
        rng: np.random.Generator,
        L: np.ndarray,
        row_sums: np.ndarray,
        n_components: int,
        literal: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """C = 1/n_d; each column of B the mean of five subjects' columns of Lᵀ, drawn without
        replacement.
        """
        n_subjects = L.shape[0]
        # of few subjects fewer: five of five are always the same mean, and all columns of B would
        # be alike
        take = max(1, min(5, n_subjects - 1 if literal else n_subjects // 2))
        picked = np.stack(
            [rng.choice(n_subjects, take, replace=False) for _ in range(n_components)]
        )
        B = L[picked].mean(axis=1).T
        if not literal:
            B = ratio(B, row_sums[:, None])
        return B, np.full((n_components, n_subjects), 1.0 / n_components)

    def settle(self, p: Problem, B: Array, C: Array) -> tuple[Array, Array]:
        """Default rules: the one scalar that minimises E, then balance. Paper rules: as drawn."""
        if p.literal:
            return B, C
        B = B * best_scale(p, B, C)
        s = self.balance(p, B, C)
        return (B, C) if s is None else (B * s, C / T(s))


class AbsoluteScheme(Scheme):
    """A scheme whose objective is ½E + λ(‖B‖₁ + ‖C‖₁)."""

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return 0.5 * E + p.penalty * (abs(p.weights * B).sum(-1).sum(-1) + abs(C).sum(-1).sum(-1))

    def balance(self, p: Problem, B: Array, C: Array) -> Array:
        size_C, size_B = abs(C).sum(-1)[..., None, :], abs(p.weights * B).sum(-2)[..., None, :]
        return balance_factor(namespace(B), size_C, size_B, 0.5)


def balance_factor(xp: object, size_C: Array, size_B: Array, power: float) -> Array:
    """(size_C / size_B)^power, and 1 where either is zero."""
    known = (size_C > 0) & (size_B > 0)
    where = xp.where  # type: ignore[attr-defined]
    return where(known, where(known, size_C, 1.0) / where(known, size_B, 1.0), 1.0) ** power


def frobenius(x: Array) -> float:
    """‖x‖_F in float64."""
    return float(np.linalg.norm(x))


def check_rules(rules: str, scheme: Scheme) -> str:
    """`rules`, if it is one of them and goes with the scheme."""
    check_value("rules", rules, OneOf(RULES))
    if rules == "paper" and not scheme.in_paper:
        raise ArgumentError(
            "rules",
            None,
            f"{{method='{literal(scheme.name)}'}} is not a method of the paper; use {{rules='default'}}",
        )
    return rules


def check_penalty(penalty: str | float, scheme: Scheme) -> None:
    """Refuse a penalty that is not one, or that the scheme does not have."""
    check_parameters(penalty=penalty)
    if not isinstance(penalty, str) and not scheme.penalised and penalty > 0:
        raise ArgumentError(
            "penalty",
            penalty,
            f"{{method='{literal(scheme.name)}'}} has no penalty; leave {{penalty='paper'}}",
        )


def penalty_of(stats: Statistics, scheme: Scheme, rules: str, penalty: str | float) -> float:
    """λ: a number as given, or "paper": the paper's constant.

    Paper rules take it literally, from the L at hand. Default rules take it for X brought to
    `REFERENCE_SIZE`, from the root faces' L, so that X times a number has the same fit.
    """
    if isinstance(penalty, str):
        if rules == "paper":
            return scheme.paper_penalty(frobenius(stats.L))
        scale = stats.scale
        return (
            scheme.paper_penalty(frobenius(stats.root_L) / scale) * scale**scheme.penalty_degree
            if scale
            else 0.0
        )
    return float(penalty)


def usual_penalty(stats: Statistics, scheme: Scheme, rules: str, penalty: str | float) -> float:
    """The λ that default rules have for these data, where another was given; else 0, and for
    squares: there it is next to nothing, and far more does no harm.
    """
    if isinstance(penalty, str) or rules == "paper" or scheme.penalty_degree == 1:
        return 0.0
    return penalty_of(stats, scheme, rules, "paper")
