"""When a run has arrived: the rule of `tol`, and its numbers.

`engines.kernels` holds a compiled copy of `settled`, with these numbers; a test holds the two to each other.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from icofactor.factorization.arrays import Array

TOL_WINDOW = 10
"""`tol` looks at the relative decrease of the objective over this many updates."""
TOL_FIRST, TOL_LOOKBACK = 100, 50
"""No run ends by `tol` before the first, nor unless its steps shrank since the second many updates ago: random starts
begin on a plateau (docs/defaults.md)."""
SHRUNK = 0.9
"""Steps have shrunk when the decrease over a window is at most this part of the earlier one."""
ARRIVED = 1e-4
"""Steps this much smaller than `tol` asks for have arrived in any case."""


TOL_FIRST_DIRECT = 20
"""The first update at which a run may end that does not begin on a plateau."""


def first_look(plateau: bool) -> int:
    """The first update at which a run may end by `tol`."""
    return TOL_FIRST if plateau else TOL_FIRST_DIRECT


def settled(objectives: Sequence[Array] | Array, tol: float | Array, plateau: bool = True) -> Array:
    """Which runs fell by less than `tol`, relative, over the last window, and by clearly less than some time ago.

    The second condition tells an optimum from a plateau: steps shrink on the way to the one, not on the way off the
    other; runs that begin on no `plateau` need not meet it. `objectives` holds one array of all runs per update, at
    least as many as window and lookback reach.
    """
    now = objectives[-1 - TOL_WINDOW] - objectives[-1]
    few = now <= tol * abs(objectives[-1])
    if not plateau:
        return few
    then = objectives[-1 - TOL_WINDOW - TOL_LOOKBACK] - objectives[-1 - TOL_LOOKBACK]
    with np.errstate(invalid="ignore"):
        return few & ((now <= SHRUNK * then) | (now <= ARRIVED * tol * abs(objectives[-1])))
