"""One update of a batch of runs: the plain update of the scheme, extrapolated, balanced, restarted.

`State` is everything a run carries from one update to the next; `advance` makes one update of it. Both have a
leading batch axis, so one start and a thousand go the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icofactor.arrays import Array, T, namespace, where_each
from icofactor.extrapolation import PLAIN_UPDATES, TAU_START, Extrapolation, momentum, next_tau
from icofactor.methods import Method
from icofactor.schemes import Problem, Scheme, Terms
from icofactor.schemes.base import error, terms_of


@dataclass(frozen=True, eq=False)
class State:
    """Where a batch of runs stands.

    Attributes
    ----------
    B, C : factors, (batch, n_k, n_d) and (batch, n_d, n_subjects)
    terms : the products of (B, C) that the error and the next update share
    error, objective : (batch,) at (B, C)
    y_B, y_C : the last plain updates, from which momentum is measured; None after a division
    tau : (batch,)
    age : number of updates made in this run
    """

    B: Array
    C: Array
    terms: Terms
    error: Array
    objective: Array
    y_B: Array | None
    y_C: Array | None
    tau: Array
    age: int

    def take(self, index: Array) -> State:
        """The runs of the batch that `index` (positions or mask) names."""
        pick = lambda x: None if x is None else x[index]
        return State(
            self.B[index],
            self.C[index],
            Terms(*(x[index] for x in self.terms)),
            self.error[index],
            self.objective[index],
            pick(self.y_B),
            pick(self.y_C),
            self.tau[index],
            self.age,
        )


def evaluate(p: Problem, scheme: Scheme, B: Array, C: Array, G: Array | None = None) -> tuple[Terms, Array, Array]:
    """Shared products, error and objective at (B, C)."""
    t = terms_of(p, B, C, G)
    E = error(p, B, t)
    return t, E, scheme.objective(p, B, C, E)


def begin(p: Problem, scheme: Scheme, B: Array, C: Array) -> State:
    """The state of a batch of runs before its first update."""
    xp = namespace(B)
    t, E, objective = evaluate(p, scheme, B, C)
    return State(B, C, t, E, objective, None, None, xp.zeros_like(E) + TAU_START, 0)


def advance(p: Problem, method: Method, s: State) -> State:
    """One update of every run of the batch."""
    extrapolating = method.extrapolation is not None and s.age >= PLAIN_UPDATES and s.y_B is not None
    new = _update(p, method, s, method.extrapolation if extrapolating else None)
    if extrapolating and not p.literal:
        new = _restart_where_risen(p, method, s, new)
    return new


def _update(p: Problem, method: Method, s: State, extrapolate: Extrapolation | None) -> State:
    """Update B, then C from the new B; extrapolate B only (paper) or both, balanced (default)."""
    scheme, tau = method.scheme, s.tau
    y_B = scheme.update_B(p, s.B, s.C, s.terms)
    B = y_B
    if extrapolate is not None:
        weight = momentum(tau)[..., None, None]
        tau = next_tau(tau)
        B = extrapolate(y_B, s.y_B, weight, scheme.signed)
    G = p.gram(B)
    y_C = C = scheme.update_C(p, B, s.C, G)
    if extrapolate is not None and not p.literal and not scheme.projective:
        C = extrapolate(y_C, s.y_C, weight, scheme.signed)
    balance = None if p.literal else scheme.balance(p, B, C)
    if balance is not None:
        # y_B and y_C stay as they came: remembering them balanced takes about twice the updates (docs/defaults.md)
        B, C, G = B * balance, C / T(balance), G * (balance * T(balance))
    t, E, objective = evaluate(p, scheme, B, C, G)
    return State(B, C, t, E, objective, y_B, y_C, tau, s.age + 1)


def _restart_where_risen(p: Problem, method: Method, before: State, after: State) -> State:
    """Default rules: where extrapolation raised the objective, take the plain update and forget the momentum."""
    xp = namespace(after.objective)
    slack = 16 * np.finfo(np.float64).eps * p.sq_norm
    risen = ~(after.objective <= before.objective + slack)  # also where it is not a number
    if not bool(risen.any()):
        return after
    few = xp.where(risen)[0]
    return _merge(risen, _update(p, method, before.take(few), None), after)


def _merge(risen: Array, plain: State, after: State) -> State:
    """`after` with the runs that have `risen` replaced by those of `plain` (which holds only these), τ at its start."""
    xp = namespace(after.objective)
    position = xp.clip(xp.cumsum(xp.where(risen, 1, 0), 0) - 1, 0, None)

    def pick(new: Array, old: Array) -> Array:
        spread = new[position]
        return where_each(risen, spread, old) if old.ndim == 3 else xp.where(risen, spread, old)

    return State(
        pick(plain.B, after.B),
        pick(plain.C, after.C),
        Terms(*(pick(x, y) for x, y in zip(plain.terms, after.terms, strict=True))),
        pick(plain.error, after.error),
        pick(plain.objective, after.objective),
        pick(plain.y_B, after.y_B),
        pick(plain.y_C, after.y_C),
        xp.where(risen, TAU_START, after.tau),
        after.age,
    )
