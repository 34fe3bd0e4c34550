"""The projected descent of parts, one start at a time in NumPy: for runs too short to compile a kernel for, and
logarithmic extrapolation.

`schemes.projective.descend` is the definition, which tests hold this to. Batches of small matrices cost the generic
functions three times as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.factorization.engines.cpu import Group, Rule, Shared, Span
from icofactor.factorization.extrapolation import logarithmic, momentum, nesterov, next_tau
from icofactor.factorization.schemes.projective import STEPS
from icofactor.factorization.update import settled

_LENGTHS = np.array([0.0, *STEPS])
_POWERS = _LENGTHS[:, None] ** np.arange(1, 5)


def descend_group(rule: Rule, shared: Shared, group: Group, span: Span) -> None:
    """`kernels.run_group` for a group of one start, in place."""
    known, age, first, n_updates, tol, settle = span
    objectives, errors, slack = group.objectives[0], group.errors[0], 16 * 2.0**-52 * shared.sq_norm
    inverse = _inverse(shared.row_sums)
    start = _Start(shared, group.Bt.copy(), inverse)
    before, tau, t, done = group.yB.copy(), float(group.tau[0]), first, 0
    for u in range(n_updates):
        if done:
            break
        t = first + u + 1
        plain = start.descended()
        going = rule.extrapolation > 0 and age + u >= rule.plain_updates and (known or u > 0)
        found = plain
        if going:
            found = (nesterov if rule.extrapolation == 1 else logarithmic)(plain, before, momentum(tau), False)
        moved = _Start(shared, found, inverse)
        if going:
            if not moved.error <= objectives[t - 1] + slack:  # uphill: the plain update
                tau, moved = 1.0, _Start(shared, plain, inverse)
            tau = next_tau(tau)
        start, before = moved, plain
        objectives[t] = errors[t] = start.error
        if not np.isfinite(start.error):
            done = 2
        elif tol > 0 and t >= settle[0] and settled(objectives[: t + 1], tol, settle[2] > 0):
            done = 1
    objectives[t + 1 : first + n_updates + 1] = errors[t + 1 : first + n_updates + 1] = objectives[t]
    group.Bt[:], group.C[:], group.yB[:], group.yC[:] = start.B, start.C, before, start.C
    group.tau[0], group.done[0], group.made[0] = tau, done, t


class _Start:
    """One start: Bᵀ, (KB)ᵀ, C, (LᵀCᵀ)ᵀ, CCᵀ, G and the error; `inverse`: 1 / (K1)."""

    def __init__(self, shared: Shared, B: Any, inverse: Any) -> None:
        self.shared, self.B, self.KB, self.inverse = shared, B, _times_K(shared, B), inverse
        self.C = B @ shared.L.T
        self.LC, self.CC, self.G = self.C @ shared.L, self.C @ self.C.T, B @ self.KB.T
        self.error = shared.sq_norm + float(np.vdot(self.G, self.CC)) - 2 * float(np.vdot(self.LC, B))

    def descended(self) -> Any:
        """B after a step of the best length."""
        B, pull = self.B, self.CC @ self.KB
        G = self.G.copy()
        G.flat[:: len(G) + 1] -= 2.0
        pull += G @ self.LC
        pull *= _inverse(self.CC.diagonal())[:, None]
        pull *= self.inverse
        step = np.maximum(B - pull, 0.0, out=pull)
        step -= B
        C = step @ self.shared.L.T
        A1, A2 = self.C @ C.T, C @ C.T
        G1, G2 = self.KB @ step.T, _times_K(self.shared, step) @ step.T
        A1, G1 = A1 + A1.T, G1 + G1.T
        at = np.vdot
        terms = [
            -2 * np.trace(A1) + at(G1, self.CC) + at(self.G, A1),
            -2 * np.trace(A2) + at(G2, self.CC) + at(G1, A1) + at(self.G, A2),
            at(G2, A1) + at(G1, A2),
            at(G2, A2),
        ]
        return B + _LENGTHS[np.argmin(_POWERS @ terms)] * step


def _times_K(shared: Shared, B: Any) -> Any:
    return B * shared.K[0] if shared.diagonal else B @ shared.K


def _inverse(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    return np.where(x > 0, 1 / np.where(x > 0, x, 1.0), 0.0)
