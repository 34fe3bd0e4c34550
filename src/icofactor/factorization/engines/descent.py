"""The projected descent of parts, one start at a time in NumPy: for runs too short to compile a kernel for, and
logarithmic extrapolation.

`schemes.projective.descend` is the definition, which tests hold this to. Where K is diagonal, faces are scaled by the
root of their size, which makes it 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from icofactor.factorization.engines.cpu import Group, Rule, Shared, Span
from icofactor.factorization.extrapolation import logarithmic, momentum, nesterov, next_tau
from icofactor.factorization.schemes.projective import STEPS
from icofactor.factorization.update import settled

_LENGTHS = np.array([0.0, *STEPS])
_POWERS = _LENGTHS[:, None] ** np.arange(1, 5)


class _Scaled(NamedTuple):
    """L of the scaled faces; K, and 1 / (K1): None where they are 1."""

    L: Any
    K: Any
    inverse: Any
    sq_norm: float


def descend_group(rule: Rule, shared: Shared, group: Group, span: Span) -> None:
    """`kernels.run_group` for a group of one start, in place."""
    known, age, first, n_updates, tol, settle = span
    objectives, errors, slack = group.objectives[0], group.errors[0], 16 * 2.0**-52 * shared.sq_norm
    root = np.sqrt(shared.K[0]) if shared.diagonal else np.ones(shared.L.shape[1])
    inverse = _inverse(root)
    K, rows = (None, None) if shared.diagonal else (shared.K, _inverse(shared.row_sums))
    p = _Scaled(shared.L * inverse, K, rows, shared.sq_norm)
    start = _Start(p, group.Bt * root)
    before = group.yB * root if known else start.B  # yB may be anything at first
    tau, t, done = float(group.tau[0]), first, 0
    for u in range(n_updates):
        if done:
            break
        t = first + u + 1
        plain, C = start.descended()
        if rule.extrapolation > 0 and age + u >= rule.plain_updates and (known or u > 0):
            extrapolate = nesterov if rule.extrapolation == 1 else logarithmic
            moved = _Start(p, extrapolate(plain, before, momentum(tau), False))
            if not moved.error <= objectives[t - 1] + slack:  # uphill: the plain update
                tau, moved = 1.0, _Start(p, plain, C)
            tau = next_tau(tau)
        else:
            moved = _Start(p, plain, C)
        start, before = moved, plain
        objectives[t] = errors[t] = start.error
        if not np.isfinite(start.error):
            done = 2
        elif tol > 0 and t >= settle[0] and settled(objectives[: t + 1], tol, settle[2] > 0):
            done = 1
    objectives[t + 1 : first + n_updates + 1] = errors[t + 1 : first + n_updates + 1] = objectives[t]
    for scaled, factor in ((start.B, group.Bt), (before, group.yB)):
        np.multiply(scaled, inverse, out=factor, where=root > 0)  # faces without weight keep their values
    group.C[:] = group.yC[:] = start.C
    group.tau[0], group.done[0], group.made[0] = tau, done, t


class _Start:
    """One start: Bᵀ, (KB)ᵀ, C; and as rows of `A` and `G` CCᵀ and BᵀKB − 2I, for the error and the search of a step."""

    def __init__(self, p: _Scaled, B: Any, C: Any = None) -> None:
        self.p, self.B, self.KB, self.C = p, B, B if p.K is None else B @ p.K, B @ p.L.T if C is None else C
        n = len(B)
        self.A, self.G = np.empty((3, n, n)), np.empty((3, n, n))
        np.matmul(self.C, self.C.T, out=self.A[0])
        np.matmul(B, self.KB.T, out=self.G[0])
        self.G[0].flat[:: n + 1] -= 2.0
        self.error = p.sq_norm + float(np.vdot(self.G[0], self.A[0]))

    def descended(self) -> tuple[Any, Any]:
        """B after a step of the best length, and its C."""
        p, B, A, G = self.p, self.B, self.A, self.G
        step = A[0] @ self.KB
        step += G[0] @ (self.C @ p.L)
        step *= _inverse(A[0].diagonal())[:, None]
        if p.inverse is not None:
            step *= p.inverse
        np.subtract(B, step, out=step)
        np.maximum(step, 0.0, out=step)
        step -= B
        C_step, K_step = step @ p.L.T, step if p.K is None else step @ p.K
        for whole, x, left, right in ((A, self.C, C_step, C_step), (G, self.KB, K_step, step)):
            cross = x @ right.T
            np.add(cross, cross.T, out=whole[1])
            np.matmul(left, right.T, out=whole[2])
        M = G.reshape(3, -1) @ A.reshape(3, -1).T
        terms = M[1, 0] + M[0, 1], M[2, 0] + M[1, 1] + M[0, 2], M[2, 1] + M[1, 2], M[2, 2]
        length = _LENGTHS[np.argmin(_POWERS @ terms)]
        step *= length
        step += B
        return step, self.C + length * C_step


def _inverse(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    return np.divide(1.0, x, out=np.zeros_like(x), where=x > 0)
