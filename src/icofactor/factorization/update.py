"""One update of a batch of runs: the plain update of the scheme, extrapolated, balanced, restarted;
and when a run has arrived.

`State` is everything a run carries from one update to the next; `advance` makes one update of it.
Both have a
leading batch axis, so one start and a thousand go the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.factorization.arrays import Array, T, namespace, turned, where_each
from icofactor.factorization.extrapolation import TAU_START, momentum, next_tau
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem, Scheme, Terms, error, terms_of

# `tol` looks at the relative decrease of the objective over this many updates.
TOL_WINDOW = 10
# No run that began on a plateau ends by `tol` unless its steps shrank since so many updates ago.
TOL_LOOKBACK = 50
# Steps have shrunk if the decrease over a window is at most this share of the earlier one.
SHRUNK = 0.9
# Steps this much smaller than `tol` asks for have arrived in any case.
ARRIVED = 1e-4


@dataclass(frozen=True, eq=False)
class State:
    """Where a batch of runs stands.

    Attributes
    ----------
    B, C : factors, (batch, n_k, n_d) and (batch, n_d, n_subjects)
    terms : the products of (B, C) that the error and the next update share; None after those of
        `engines.cpu`
    error, objective : (batch,) at (B, C)
    y_B, y_C : the last plain updates, from which momentum is measured; None after a division
    tau : (batch,)
    age : number of updates made in this run
    """

    B: Array
    C: Array
    terms: Terms | None
    error: Array
    objective: Array
    y_B: Array | None
    y_C: Array | None
    tau: Array
    age: int

    def take(self, index: Array) -> State:
        """Return the runs of the batch that `index` (positions or mask) names."""
        return self.map(lambda x: x[index])

    def map(self, change: Callable[..., Array], *others: State) -> State:
        """Return `change` of every array, with those of other states beside it; None stays None."""
        states = (self, *others)
        changed: dict[str, Any] = {}
        for name in ARRAYS:
            if getattr(self, name) is not None:
                changed[name] = change(*(getattr(state, name) for state in states))
        if self.terms is not None:
            terms = [state.terms or () for state in states]
            changed["terms"] = Terms(*map(change, *terms))
        return replace(self, **changed)


# The arrays of a State.
ARRAYS = ("B", "C", "error", "objective", "y_B", "y_C", "tau")


def evaluate(
    p: Problem,
    scheme: Scheme,
    B: Array,
    C: Array,
    G: Array | None = None,
) -> tuple[Terms, Array, Array]:
    """Return shared products, error and objective at (B, C)."""
    terms = terms_of(p, B, C, G)
    E = error(p, B, terms)
    return terms, E, scheme.objective(p, B, C, E)


def begin(
    p: Problem,
    scheme: Scheme,
    B: Array,
    C: Array,
) -> State:
    """Return the state of a batch of runs before its first update."""
    B = turned(B)
    terms, E, objective = evaluate(p, scheme, B, C)
    tau = np.zeros_like(E) + TAU_START
    return State(
        B,
        C,
        terms,
        E,
        objective,
        None,
        None,
        tau,
        0,
    )


def advance(
    p: Problem,
    method: Method,
    state: State,
) -> State:
    """Make one update of every run of the batch."""
    is_plain = method.extrapolation is None or state.age < method.plain_updates
    if is_plain or state.y_B is None:
        return propose(p, method, state)
    proposed = propose(p, method, state, momentum(state.tau))
    proposed = replace(proposed, tau=next_tau(state.tau))
    if p.literal:
        return proposed
    # Default rules: where extrapolation raised the objective, the plain update is taken instead,
    # and the momentum is forgotten.
    rose = risen(p, state, proposed)
    if not bool(rose.any()):
        return proposed
    plain = propose(p, method, state.take(np.flatnonzero(rose)))
    return _merge(rose, plain, proposed)


def propose(
    p: Problem,
    method: Method,
    state: State,
    weight: Array | None = None,
) -> State:
    """Update B, then C from the new B; extrapolate B only (paper) or both, balanced (default).

    `weight`, (batch,), is that of the momentum; None and 0 both give the plain update. τ is left as
    it is.
    """
    scheme = method.scheme
    assert state.terms is not None
    y_B = B = scheme.update_B(p, state.B, state.C, state.terms)
    extrapolate = None if weight is None else method.extrapolation
    if extrapolate is not None and weight is not None:
        weight = weight[..., None, None]
        B = extrapolate(y_B, state.y_B, weight, scheme.signed_maps)
    G = p.gram(B)
    y_C = C = scheme.update_C(p, B, state.C, G)
    if extrapolate is not None and carries_C(p, method):
        C = extrapolate(y_C, state.y_C, weight, scheme.signed_loadings)
    balance = None if p.literal else scheme.balance(p, B, C)
    if balance is not None:
        # y_B and y_C stay as they came: remembering them balanced takes about twice the updates.
        B = B * balance
        C = C / T(balance)
        G = G * (balance * T(balance))
    terms, E, objective = evaluate(p, scheme, B, C, G)
    return State(
        B,
        C,
        terms,
        E,
        objective,
        y_B,
        y_C,
        state.tau,
        state.age + 1,
    )


def carries_C(p: Problem, method: Method) -> bool:
    """Whether C is extrapolated too; otherwise its plain update is C itself."""
    return method.extrapolation is not None and not p.literal and not method.scheme.projective


def risen(
    p: Problem,
    before: State,
    after: State,
) -> Array:
    """Return (batch,) whether the objective rose by more than rounding, or is no number."""
    precision = namespace(after.objective).finfo(after.objective.dtype).eps
    slack = 16 * precision * p.sq_norm
    # NaN is not at most anything.
    return ~(after.objective <= before.objective + slack)


def _merge(
    rose: Array,
    plain: State,
    proposed: State,
) -> State:
    """Return `proposed` with the runs that `rose` replaced by those of `plain`, τ at its start.

    `plain` holds only these runs.
    """
    position = np.maximum(np.cumsum(rose) - 1, 0)

    def pick(old: Array, new: Array) -> Array:
        spread = new[position]
        if old.ndim == 3:
            return where_each(rose, spread, old)
        return np.where(rose, spread, old)

    tau = np.where(rose, TAU_START, proposed.tau)
    return replace(proposed.map(pick, plain), tau=tau)


def settled(
    objectives: Sequence[Array] | Array,
    tol: float | Array,
    plateau: bool = True,
) -> Array:
    """Return which runs fell by less than `tol` over the last window, and by less than before.

    The second condition tells an optimum from a plateau: steps shrink on the way to the one, not on
    the way off the other; runs that begin on no `plateau` need not meet it. `objectives` holds one
    array of all runs per update, at least as many as window and lookback reach. The other engines
    call this very function: it is the one stopping rule.
    """
    recent = objectives[-1 - TOL_WINDOW] - objectives[-1]
    is_small = recent <= tol * abs(objectives[-1])
    if not plateau:
        return is_small
    earlier = objectives[-1 - TOL_WINDOW - TOL_LOOKBACK] - objectives[-1 - TOL_LOOKBACK]
    has_arrived = recent <= ARRIVED * tol * abs(objectives[-1])
    return is_small & ((recent <= SHRUNK * earlier) | has_arrived)
