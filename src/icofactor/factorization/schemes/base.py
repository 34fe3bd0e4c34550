"""What schemes share: the problem that updates solve, the error (eq. 1), the contract `Scheme`.

B is (..., n_k, n_d) and C is (..., n_d, n_subjects); the leading axes are a batch of independent
starts. Functions are pure: they write into none of their arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.errors import ArgumentError
from icofactor.factorization.arrays import (
    Array,
    T,
    dot,
    matmul_shared,
    namespace,
    product,
)
from icofactor.factorization.extrapolation import PLAIN_UPDATES, Extrapolation
from icofactor.factorization.quadratic import Quadratic, minimise
from icofactor.factorization.statistics import Statistics
from icofactor.maps.blocks import cut
from icofactor.maps.workers import in_order

Factors = tuple[Array, Array]  # B and C

RULES = ("paper", "default")
# LᵀL is summed over blocks of this many subjects, on all processors. The same on every machine, so
# that results are the same to the last bit.
SUBJECTS_PER_BLOCK = 8192


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
        """Return the problem that a scheme poses for these statistics.

        Rules and penalty must be checked already.
        """
        literal = rules == "paper"
        if stats.is_diagonal:
            K: Array = stats.K.diagonal()
            row_sums = K
        else:
            # A sparse product is faster only if the matrix is large and mostly empty.
            n = stats.n_columns
            stays_sparse = n > 64 and stats.K.nnz < 0.2 * n**2
            K = stats.K if stays_sparse else stats.K.toarray()
            row_sums = np.asarray(stats.K.sum(axis=1)).ravel()
        weights = np.ones(stats.n_columns) if literal else stats.weights
        return cls(
            L=stats.L,
            K=K,
            row_sums=row_sums,
            weights=weights[:, None],
            penalty=penalty_of(stats, scheme, rules, penalty),
            sq_norm=stats.sq_norm,
            L_norm=float(np.linalg.norm(stats.L)),
            literal=literal,
            signed=bool(stats.L.min() < 0),
            scale=1.0 if literal else stats.scale,
        )

    def compact(self) -> Problem:
        """Return the problem with another L that has the same LᵀL and no more rows than columns."""
        blocks = cut(len(self.L), SUBJECTS_PER_BLOCK)
        products = in_order(lambda subjects: self.L[subjects].T @ self.L[subjects], blocks)
        return replace(self, L=square_root(sum(products)))

    def times_K(self, B: Array) -> Array:
        """Return K B."""
        if not sp.issparse(self.K):
            return self.K[:, None] * B if self.K.ndim == 1 else self.K @ B
        # SciPy multiplies single matrices only, so the matrices of the batch stand side by side.
        rows_first = np.moveaxis(B, -2, 0)
        KB = self.K @ rows_first.reshape(len(rows_first), -1)
        return np.moveaxis(KB.reshape(rows_first.shape), 0, -2)

    def gram(self, B: Array) -> Array:
        """Return G = BᵀKB."""
        return product(T(B), self.times_K(B))

    def project(self, B: Array) -> Array:
        """Return BᵀLᵀ."""
        return matmul_shared(T(B), T(self.L))


def square_root(M: Array) -> np.ndarray:
    """Return a square L with LᵀL = M."""
    values, vectors = np.linalg.eigh(M)
    roots = np.sqrt(np.maximum(values, 0.0))
    return np.ascontiguousarray((vectors * roots).T)


class Terms(NamedTuple):
    """The products of the factors that the error and the next update share.

    Attributes
    ----------
    LC : (..., n_k, n_d), LᵀCᵀ
    CC : (..., n_d, n_d), CCᵀ
    G : (..., n_d, n_d), BᵀKB
    """

    LC: Array
    CC: Array
    G: Array


def terms_of(
    p: Problem,
    B: Array,
    C: Array,
    G: Array | None = None,
) -> Terms:
    """Return the shared products at (B, C); pass G if it is known already."""
    LC = T(matmul_shared(C, p.L))
    return Terms(LC, C @ T(C), p.gram(B) if G is None else G)


def error(p: Problem, B: Array, t: Terms) -> Array:
    """Return E = ‖X − DBC‖² = ‖X‖² − 2⟨LᵀCᵀ, B⟩ + ⟨G, CCᵀ⟩ (eq. 1, and eq. 9 if C = BᵀLᵀ)."""
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
    updates : how updates are made, if that needs saying; follows the word "updates"
    update_references : full references of the updates
    starts : what random starts are, if that needs saying; follows their number
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
    `text`. `PenalisedScheme` has the objective of a scheme with the penalty λ(‖B‖₁ + ‖C‖₁), and
    `nonnegative.NonNegativeScheme` has starts and updates too. Everything else has a default.
    """

    # Methods are named by the prefix of an extrapolation and this.
    name: str
    # What the methods paragraph says.
    text: SchemeText

    # ------------------------------------------------------------------ data and factors

    # Whether X may hold negative values. If not, they are refused with a list of methods that take
    # them.
    signed_data = False
    # Whether B may be negative, and with it the basis maps.
    signed_maps = False
    # Whether C may be negative.
    signed_loadings = False
    # Whether C is not free but the projection BᵀLᵀ. Loadings are then WᵀX, and only B is
    # extrapolated.
    projective = False
    # Whether there is a penalty λ. If not, λ is 0 and any other number is refused.
    penalised = True
    # For X times c, λ times c to this power gives the same maps and loadings, times √c each: 1.5
    # for absolute values, 1 for squares.
    penalty_degree = 1.5
    # Whether components are reported at the scale at which loadings have a root mean square of 1
    # and maps are in the data's units. If not, they stay as the scheme has them.
    scaled = True
    # What may be taken out of each site before the fit: "none", "mean" or "zscore". `center="auto"`
    # takes the first.
    centers: tuple[str, ...] = ("none",)

    # ------------------------------------------------------------------ updates and engines

    # Whether the paper has it. Others are refused under paper rules, and need no code for
    # `Problem.literal`.
    in_paper = False
    # Prefix of the method's name → extrapolation (None: plain updates); one method for each.
    extrapolations: Mapping[str, Extrapolation | None] = MappingProxyType({"": None})
    # Updates at the start of a run that are not extrapolated.
    plain_updates = PLAIN_UPDATES
    # Starts by default.
    n_starts = 10
    # How many of the starts are run: those with the lowest objective. None: all.
    n_finished: int | None = None
    # Whether random starts begin on a plateau, on which a run must not be taken for settled.
    plateau = True
    # The first update at which `tol` may end a run.
    first_look = 100
    # Sweeps of coordinate descent per update, 0 for other updates. Sweeps walk through the
    # components one by one: few updates are needed, and interpreted code and GPUs are slow at them.
    sweeps = 0
    # Name of the same updates in compiled code (`engines.kernels.UPDATES`). None: NumPy runs it.
    kernel: str | None = None
    # Whether JAX can trace the functions. If not, NumPy runs it.
    jax = True
    # What to do when a run under paper rules leaves the finite numbers. "": the usual advice.
    divergence_advice = ""

    # ------------------------------------------------------------------ full resolution

    # Whether faces are divided after the starts by default.
    refined = True
    # Sweeps of coordinate descent on each `site_problem`.
    lift_sweeps = 5

    def kernel_for(self, p: Problem) -> str | None:
        """Return the kernel with the updates for this problem."""
        return self.kernel

    def compactable(self, p: Problem) -> bool:
        """Return whether `Problem.compact` leaves objective and start as they are and saves work.

        They depend on L only through LᵀL, and there are more subjects than faces.
        """
        n_subjects, n_columns = p.L.shape
        is_tall = isinstance(p.L, np.ndarray) and n_subjects > n_columns
        through_products = self.projective and not p.literal
        # Starts of data ≥ 0 may need the mean over subjects, which LᵀL does not have.
        without_mean = p.signed or self.centers[0] == "none"
        return is_tall and through_products and without_mean

    @abstractmethod
    def paper_penalty(self, L_norm: float) -> float:
        """Return λ as the paper has it; `penalty_of` says what `penalty="paper"` means."""

    @abstractmethod
    def draw(self, p: Problem, n_components: int, rng: np.random.Generator) -> Factors:
        """Draw one random start, always in NumPy; `settle` makes it ready."""

    def draw_many(
        self,
        p: Problem,
        n_components: int,
        streams: Sequence[np.random.Generator],
        n_best: int | None = None,
    ) -> Factors:
        """Draw several starts as one batch, each from its own stream.

        `n_best` is how many of them are wanted at least, for schemes that keep only the best.
        """
        starts = [self.draw(p, n_components, rng) for rng in streams]
        B, C = zip(*starts, strict=True)
        return np.stack(B), np.stack(C)

    @abstractmethod
    def settle(self, p: Problem, B: Array, C: Array) -> Factors:
        """Make a drawn start ready: scaled and balanced under default rules. Always in NumPy."""

    @abstractmethod
    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        """Return the plain update of B."""

    @abstractmethod
    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        """Return the plain update of C, from the new B and its G."""

    @abstractmethod
    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        """Return the objective, given the error E at (B, C).

        Under default rules updates must not raise it.
        """

    def balance(self, p: Problem, B: Array, C: Array) -> Array | None:
        """Return factors s, (..., 1, n_d): B·s and C/s leave E as it is and make the penalty least.

        None: no balance.
        """
        return None

    def split_penalty(self, penalty: float) -> tuple[float, float]:
        """Return λ as the weights (ridge, lasso) of ½‖x − Cᵀb‖² + ½ ridge ‖b‖² + lasso ‖b‖₁.

        Lift and transform solve such problems.
        """
        return 0.0, penalty

    def site_problem(
        self,
        C: np.ndarray,
        G: np.ndarray | None,
        penalty: float,
        site_weight: float,
    ) -> Quadratic:
        """Return what each site solves for its row of W, given the loadings C.

        The values x of a site over the subjects enter as `linear @ x`; in the penalty a site weighs
        `site_weight`. G is BᵀKB of the coarse basis, None if it is not known.
        """
        ridge, lasso = self.split_penalty(penalty)
        gram = C @ C.T + ridge * site_weight * np.eye(len(C))
        return Quadratic(gram, C, lasso * site_weight, self.signed_maps)

    def loadings_of(
        self,
        WX: np.ndarray,
        WW: np.ndarray,
        penalty: float,
    ) -> np.ndarray:
        """Return loadings, n_d × subjects, with the basis fixed, from WᵀX and WᵀW.

        They are the projection, or solve the convex problem in C that the objective leaves; for the
        fitted subjects after the lift and for new ones alike.
        """
        if self.projective:
            return WX
        ridge, lasso = self.split_penalty(penalty)
        A = WW + ridge * np.eye(len(WW))
        return minimise(A, WX, lasso, self.signed_loadings)


class PenalisedScheme(Scheme):
    """A scheme that minimises ½E + λ(‖B‖₁ + ‖C‖₁), or has squares in place of absolute values."""

    # What E is multiplied by in the objective.
    error_share = 0.5
    # The penalty is least at B·s and C/s, where s is the ratio of the magnitudes of C and B to this
    # power.
    balance_power = 0.5

    def magnitudes(self, p: Problem, B: Array, C: Array) -> Factors:
        """Return what each entry of B and of C adds to the penalty, over λ."""
        return abs(p.weights * B), abs(C)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        size_B, size_C = self.magnitudes(p, B, C)
        total_B = size_B.sum(-1).sum(-1)
        total_C = size_C.sum(-1).sum(-1)
        return self.error_share * E + p.penalty * (total_B + total_C)

    def balance(self, p: Problem, B: Array, C: Array) -> Array:
        size_B, size_C = self.magnitudes(p, B, C)
        ratio = quotient(size_C.sum(-1), size_B.sum(-2))[..., None, :]
        ratio = namespace(ratio).where(ratio > 0, ratio, 1.0)
        return ratio**self.balance_power


def quotient(x: Array, y: Array) -> Array:
    """Return x / y where y > 0, and 0 elsewhere."""
    xp = namespace(y)
    positive = y > 0
    divisor = xp.where(positive, y, 1.0)
    return xp.where(positive, x / divisor, 0.0)


def best_scale(p: Problem, B: Array, C: Array) -> np.ndarray:
    """Return the scalar s, (..., 1, 1), that minimises E at (sB, C); 1 where B or C is zero."""
    t = terms_of(p, B, C)
    s = quotient(dot(t.LC, B), dot(t.G, t.CC))
    s = np.where(s > 0, s, 1.0)
    return s[..., None, None]


def scaled_and_balanced(
    scheme: Scheme,
    p: Problem,
    B: Array,
    C: Array,
) -> Factors:
    """Return the factors at the scale of B that minimises E, then balanced."""
    B = B * best_scale(p, B, C)
    s = scheme.balance(p, B, C)
    return (B, C) if s is None else (B * s, C / T(s))


def check_rules(rules: str, scheme: Scheme) -> None:
    """Refuse rules that do not exist, or that do not go with the scheme."""
    check_value("rules", rules, OneOf(RULES))
    if rules == "paper" and not scheme.in_paper:
        message = f"{scheme.name!r} is not a method of the paper; use the default rules"
        raise ArgumentError("rules", message)


def check_penalty(penalty: str | float, scheme: Scheme) -> None:
    """Refuse a penalty that is not one, or that the scheme does not have."""
    check_parameters(penalty=penalty)
    if not isinstance(penalty, str) and not scheme.penalised and penalty > 0:
        message = f"{scheme.name!r} has no penalty, so leave 'paper'"
        raise ArgumentError("penalty", f"{message}; found {penalty}")


def penalty_of(
    stats: Statistics,
    scheme: Scheme,
    rules: str,
    penalty: str | float,
) -> float:
    """Return λ: a number as it is, or the constant of the paper for "paper".

    Paper rules take the constant literally, from the L at hand. Default rules take it for X brought
    to `REFERENCE_SIZE`, from the root faces' L, so that X times a number has the same fit.
    """
    if not isinstance(penalty, str):
        return float(penalty)
    if rules == "paper":
        L_norm = float(np.linalg.norm(stats.L))
        return scheme.paper_penalty(L_norm)
    scale = stats.scale
    if scale == 0:
        return 0.0
    L_norm = float(np.linalg.norm(stats.root_L)) / scale
    return scheme.paper_penalty(L_norm) * scale**scheme.penalty_degree
