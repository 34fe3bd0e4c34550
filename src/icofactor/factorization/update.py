"""One update of a batch of runs: the plain update of the scheme, extrapolated, balanced, restarted;
and when a run has arrived.

`State` is everything a run carries from one update to the next; `advance` makes one update of it.
Both have a
leading batch axis, so one start and a thousand go the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from icofactor.factorization.arrays import Array, T, namespace, turned, where_each
from icofactor.factorization.extrapolation import TAU_START, momentum, next_tau
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem, Scheme, Terms, error, terms_of

TOL_WINDOW = 10
"""`tol` looks at the relative decrease of the objective over this many updates."""
TOL_LOOKBACK = 50
"""No run that began on a plateau ends by `tol` unless its steps shrank since so many updates ago.
"""
SHRUNK = 0.9
"""Steps have shrunk when the decrease over a window is at most this part of the earlier one."""
ARRIVED = 1e-4
"""Steps this much smaller than `tol` asks for have arrived in any case."""


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
        """The runs of the batch that `index` (positions or mask) names."""
        return self.map(lambda x: x[index])

    def map(self, change: Callable[..., Array], *others: State) -> State:
        """`change` of every array, with those of other states beside it; what is None stays None."""
        names = [
            name
            for name in ("B", "C", "error", "objective", "y_B", "y_C", "tau")
            if getattr(self, name) is not None
        ]
        arrays = {
            name: change(*(getattr(state, name) for state in (self, *others))) for name in names
        }
        terms = self.terms and Terms(
            *map(change, self.terms, *(state.terms or () for state in others))
        )
        return replace(self, terms=terms, **arrays)


def evaluate(
    p: Problem, scheme: Scheme, B: Array, C: Array, G: Array | None = None
) -> tuple[Terms, Array, Array]:
    """Shared products, error and objective at (B, C)."""
    t = terms_of(p, B, C, G)
    E = error(p, B, t)
    return t, E, scheme.objective(p, B, C, E)


def begin(p: Problem, scheme: Scheme, B: Array, C: Array) -> State:
    """The state of a batch of runs before its first update."""
    B = turned(B)
    t, E, objective = evaluate(p, scheme, B, C)
    return State(B, C, t, E, objective, None, None, np.zeros_like(E) + TAU_START, 0)


def advance(p: Problem, method: Method, s: State) -> State:
    """One update of every run of the batch."""
    if method.extrapolation is None or s.age < method.plain_updates or s.y_B is None:
        return propose(p, method, s)
    new = replace(propose(p, method, s, momentum(s.tau)), tau=next_tau(s.tau))
    return new if p.literal else _restart_where_risen(p, method, s, new)


def propose(p: Problem, method: Method, s: State, weight: Array | None = None) -> State:
    """Update B, then C from the new B; extrapolate B only (paper) or both, balanced (default).

    `weight`, (batch,), is that of the momentum; None and 0 both give the plain update. τ is left as
    it is.
    """
    scheme, extrapolate = method.scheme, method.extrapolation if weight is not None else None
    assert s.terms is not None
    y_B = B = scheme.update_B(p, s.B, s.C, s.terms)
    if extrapolate is not None:
        assert weight is not None
        weight = weight[..., None, None]
        B = extrapolate(y_B, s.y_B, weight, scheme.signed_maps)
    G = p.gram(B)
    y_C = C = scheme.update_C(p, B, s.C, G)
    if extrapolate is not None and carries_C(p, method):
        C = extrapolate(y_C, s.y_C, weight, scheme.signed_loadings)
    balance = None if p.literal else scheme.balance(p, B, C)
    if balance is not None:
        # y_B and y_C stay as they came: remembering them balanced takes about twice the updates
        B, C, G = B * balance, C / T(balance), G * (balance * T(balance))
    t, E, objective = evaluate(p, scheme, B, C, G)
    return State(B, C, t, E, objective, y_B, y_C, s.tau, s.age + 1)


def carries_C(p: Problem, method: Method) -> bool:
    """Whether C is extrapolated too; where it is not, its plain update is C itself."""
    return method.extrapolation is not None and not p.literal and not method.scheme.projective


def risen(p: Problem, before: State, after: State) -> Array:
    """(batch,) whether the objective rose by more than rounding, or is no longer a number."""
    slack = 16 * float(namespace(after.objective).finfo(after.objective.dtype).eps) * p.sq_norm
    return ~(after.objective <= before.objective + slack)


def _restart_where_risen(p: Problem, method: Method, before: State, after: State) -> State:
    """Default rules: where extrapolation raised the objective, take the plain update and forget the
    momentum.
    """
    rose = risen(p, before, after)
    if not bool(rose.any()):
        return after
    few = np.flatnonzero(rose)
    return _merge(rose, propose(p, method, before.take(few)), after)


def _merge(rose: Array, plain: State, after: State) -> State:
    """`after` with the runs that `rose` replaced by those of `plain` (which holds only these), τ at
    its start.
    """
    position = np.maximum(np.cumsum(rose) - 1, 0)

    def pick(old: Array, new: Array) -> Array:
        spread = new[position]
        return where_each(rose, spread, old) if old.ndim == 3 else np.where(rose, spread, old)

    return replace(after.map(pick, plain), tau=np.where(rose, TAU_START, after.tau))


def settled(objectives: Sequence[Array] | Array, tol: float | Array, plateau: bool = True) -> Array:
    """Which runs fell by less than `tol`, relative, over the last window, and by clearly less than
    some time ago.

    The second condition tells an optimum from a plateau: steps shrink on the way to the one, not on
    the way off the other; runs that begin on no `plateau` need not meet it. `objectives` holds one
    array of all runs per update, at least as many as window and lookback reach. The other engines
    call this very function: it is the one stopping rule.
    """
    now = objectives[-1 - TOL_WINDOW] - objectives[-1]
    few = now <= tol * abs(objectives[-1])
    if not plateau:
        return few
    then = objectives[-1 - TOL_WINDOW - TOL_LOOKBACK] - objectives[-1 - TOL_LOOKBACK]
    return few & ((now <= SHRUNK * then) | (now <= ARRIVED * tol * abs(objectives[-1])))
