"""The JAX engine: the generic functions of `update`, compiled into one loop on the device of JAX.

Nothing is computed here that is not defined elsewhere: a tick of the loop is `update.propose`,
`update.risen` and `update.settled`, traced. Each run keeps its own count of updates. Where
extrapolation raised the objective, the run stays where it was and makes the plain update in the
next tick (weight 0), while the others go on: a batch never waits for, nor pays for, the restarts of
a few. So runs that restarted need more ticks, and ticks go on until all are there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icofactor.factorization._solve import Course, Run, is_worse_half
from icofactor.factorization.arrays import Array, double, where_each
from icofactor.factorization.extrapolation import TAU_START, momentum, next_tau
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem, Terms
from icofactor.factorization.update import (
    TOL_LOOKBACK,
    TOL_WINDOW,
    State,
    carries_C,
    propose,
    risen,
)
from icofactor.factorization.update import settled as has_settled

# Ticks of one compiled loop, between two looks at who has ended; the short one for few updates.
STRETCH, SHORT_STRETCH = 25, 10
# Ticks written out one after the other on an accelerator, where the loop itself costs.
UNROLL = 5
# Share of the memory of a device that the factors of a batch may take, and its default in bytes.
MEMORY_SHARE, DEFAULT_BYTES = 0.25, 256 * 2**20

DATA_FIELDS = [field.name for field in fields(State) if field.name != "age"]
jax.tree_util.register_dataclass(State, data_fields=DATA_FIELDS, meta_fields=["age"])


class _Runs(NamedTuple):
    """A batch on the device.

    In `state` y_B is None without extrapolation, y_C if it equals C, and age is 0. `n_made` counts
    updates, `is_plain` says that the next one is not extrapolated, `ended` and `settled` that the
    run left the finite numbers or met tol. `window` holds the last objectives, as many as tol looks
    at.
    """

    state: State
    n_made: Array
    is_plain: Array
    ended: Array
    settled: Array
    window: Array | None


class _Path(NamedTuple):
    """What was recorded after every tick, (ticks, batch) each."""

    objective: Array
    error: Array
    n_made: Array


# On the device


def _tick(
    p: Problem,
    method: Method,
    target: Array,
    age: Array,
    tol: Array,
    runs: _Runs,
) -> _Runs:
    """Make one update of every run that is active and has not yet made `target` updates."""
    state, is_plain = runs.state, runs.is_plain
    tau = state.tau
    accepted = ~runs.ended & (runs.n_made < target)
    if method.extrapolation is None:
        proposed = propose(p, method, state)
    else:
        proposed = propose(p, method, state, jnp.where(is_plain, 0.0, momentum(tau)))
        advanced = jnp.where(is_plain, tau, next_tau(tau))
        if not p.literal:
            # Such a run makes the plain update in the next tick.
            rejected = accepted & ~is_plain & risen(p, state, proposed)
            accepted = accepted & ~rejected
            tau = jnp.where(rejected, TAU_START, tau)
            is_plain = is_plain | rejected
        tau = jnp.where(accepted, advanced, tau)
        begins_plain = age + runs.n_made + 1 < method.plain_updates
        is_plain = jnp.where(accepted, begins_plain, is_plain)

    def pick(old: Array, new: Array) -> Array:
        if old.ndim == 3:
            return where_each(accepted, new, old)
        return jnp.where(accepted, new, old)

    state = replace(state.map(pick, proposed), tau=tau)
    n_made = runs.n_made + accepted
    ended = runs.ended | ~jnp.isfinite(state.objective) & accepted
    settled, window = runs.settled, runs.window
    if window is not None:
        shifted = jnp.concatenate([window[1:], state.objective[None]])
        window = jnp.where(accepted, shifted, window)
        is_late = accepted & (n_made >= method.scheme.first_look)
        settled = settled | is_late & has_settled(window, tol, method.scheme.plateau)
        ended = ended | settled
    return _Runs(
        state,
        n_made,
        is_plain,
        ended,
        settled,
        window,
    )


def _stretch(
    numbers: tuple[Array, ...],
    runs: _Runs,
    target: Array,
    age: Array,
    tol: Array,
    *,
    method: Method,
    literal: bool,
    signed: bool,
    n_ticks: int,
    unroll: int,
) -> tuple[_Runs, _Path, Array]:
    """Make `n_ticks` ticks.

    Returns also what they recorded, and how many runs are still active with the least number of
    updates that these made.
    """
    L, K, row_sums, weights, penalty, sq_norm, L_norm = numbers
    p = Problem(
        L,
        K,
        row_sums,
        weights,
        penalty,
        sq_norm,
        L_norm,
        literal,
        signed,
    )

    def step(runs: _Runs, _: None) -> tuple[_Runs, _Path]:
        runs = _tick(
            p,
            method,
            target,
            age,
            tol,
            runs,
        )
        return runs, _Path(runs.state.objective, runs.state.error, runs.n_made)

    runs, path = jax.lax.scan(step, runs, None, length=n_ticks, unroll=unroll)
    active = ~runs.ended & (runs.n_made < target)
    least = jnp.where(active, runs.n_made, target).min()
    return runs, path, jnp.stack([active.sum(), least])


@cache
def _compiled() -> Callable[..., tuple[_Runs, _Path, Array]]:
    """Return `_stretch`, compiled once for each method, rules and shapes."""
    fixed = ("method", "literal", "signed", "n_ticks", "unroll")
    return jax.jit(_stretch, static_argnames=fixed, donate_argnames="runs")


# On the host


def iterate(
    p: Problem,
    method: Method,
    state: State,
    course: Course,
) -> Run:
    """Do what `_solve.iterate` does on the device of JAX; NumPy arrays come in and go out.

    Runs end at the very update at which they would there: by `tol`, by halving, or out of the
    finite numbers. Those that ended stay in the batch, held still. JAX settings of the user stay
    as they are. `on_update` is called after stretches of updates, not after each.
    """
    with settings():
        batch = _Batch(p, method, state, course)
        marks = {update for update in course.halve_at if 0 < update < course.n_iter}
        if course.n_iter:
            marks.add(course.n_iter)
        for mark in sorted(marks):
            batch.reach(mark)
            if mark in course.halve_at:
                batch.halve(mark)
            if batch.all_ended:
                break
        return batch.run()


def settings() -> ExitStack:
    """Compute in float64 and with products in full precision, in this thread and for now only."""
    stack = ExitStack()
    if hasattr(jax, "enable_x64"):
        stack.enter_context(jax.enable_x64(True))
    else:
        # Before version 0.8.
        from jax.experimental import enable_x64

        stack.enter_context(enable_x64())
    stack.enter_context(jax.default_matmul_precision("highest"))
    return stack


def batch_bytes() -> int:
    """Return how much memory the factors of one batch may take."""
    # The CPU does not say.
    stats = jax.local_devices()[0].memory_stats() or {}
    limit = stats.get("bytes_limit")
    return DEFAULT_BYTES if limit is None else int(MEMORY_SHARE * limit)


def has_accelerator() -> bool:
    """Whether JAX computes anywhere but on the CPU."""
    return jax.default_backend() != "cpu"


def bucket(n: int) -> int:
    """Round up, by an eighth at most, so that few sizes need compiling."""
    power = 1 << max(n - 1, 0).bit_length()
    step = max(1, power // 16)
    return -(-n // step) * step


class _Batch:
    """The runs on the device, and what was recorded of them."""

    def __init__(
        self,
        p: Problem,
        method: Method,
        state: State,
        course: Course,
    ) -> None:
        self.p = p
        self.method = method
        self.state = state
        self.course = course
        self.n_runs = len(state.error)
        self.n_columns = bucket(p.L.shape[1])
        self.n_ticks = STRETCH if course.n_iter >= STRETCH else SHORT_STRETCH
        self.reached = 0
        self.recorded: list[_Path] = []
        self.numbers = self._numbers()
        self.runs = self._loaded()

    def _padded(self, x: Array, axis: int) -> np.ndarray:
        """Return x in float64, with zero rows of B up to the bucket.

        They stay zero, because 0 ⊘ 0 = 0.
        """
        pad = [(0, 0)] * x.ndim
        pad[axis] = (0, self.n_columns - x.shape[axis])
        return np.pad(np.asarray(x, dtype=np.float64), pad)

    def _numbers(self) -> tuple[Array, ...]:
        """Return the arrays and numbers of the problem, on the device."""
        p = self.p
        K = p.K.toarray() if hasattr(p.K, "toarray") else np.asarray(p.K)
        for axis in range(K.ndim):
            K = self._padded(K, axis)
        arrays = (
            self._padded(p.L, 1),
            K,
            self._padded(p.row_sums, 0),
            self._padded(p.weights, 0),
            np.float64(p.penalty),
            np.float64(p.sq_norm),
            np.float64(p.L_norm),
        )
        return tuple(jnp.asarray(array) for array in arrays)

    def _loaded(self) -> _Runs:
        """Return the state on the device."""
        state = self.state
        assert state.terms is not None
        y_B, y_C = state.y_B, state.y_C
        if y_B is None:
            # The next update is plain, so any values will do.
            y_B, y_C = state.B, state.C
        on_device = State(
            B=self._padded(state.B, 1),
            C=double(state.C),
            terms=Terms(
                self._padded(state.terms.LC, 1), double(state.terms.CC), double(state.terms.G)
            ),
            error=double(state.error),
            objective=double(state.objective),
            y_B=None if self.method.extrapolation is None else self._padded(y_B, 1),
            y_C=double(y_C) if carries_C(self.p, self.method) else None,
            tau=double(state.tau),
            age=0,
        )
        is_plain = state.y_B is None or state.age < self.method.plain_updates
        false = np.zeros(self.n_runs, dtype=bool)
        n_made = np.zeros(self.n_runs, dtype=np.int32)
        runs = _Runs(
            on_device,
            n_made,
            false | is_plain,
            false,
            false,
            None,
        )
        runs = jax.tree.map(jnp.asarray, runs)
        if self.course.tol == 0:
            return runs
        length = TOL_WINDOW + TOL_LOOKBACK + 1
        return runs._replace(window=jnp.tile(runs.state.objective, (length, 1)))

    def reach(self, mark: int) -> None:
        """Update all runs that are still active up to update number `mark`.

        The host looks at a stretch while the device is at the next one, as long as there must be a
        next one.
        """
        least = -(-(mark - self.reached) // self.n_ticks)
        looks: list[Array] = []
        while True:
            looks.append(self._dispatch(mark))
            if len(looks) == 1 < least:
                continue
            look = looks[-1] if len(looks) >= least else looks[-2]
            n_active, n_made = map(int, np.asarray(look))
            if self.course.on_update is not None:
                self.course.on_update(n_made)
            if n_active == 0:
                break
        self.reached = mark

    def _dispatch(self, mark: int) -> Array:
        """Start a stretch; return a look at how far it got, which need not be ready yet."""
        self.runs, path, look = _compiled()(
            self.numbers,
            self.runs,
            np.int32(mark),
            np.int32(self.state.age),
            np.float64(self.course.tol),
            method=self.method,
            literal=self.p.literal,
            signed=self.p.signed,
            n_ticks=self.n_ticks,
            unroll=UNROLL if has_accelerator() else 1,
        )
        self.recorded.append(path)
        return look

    def halve(self, mark: int) -> None:
        """End the worse half of the active runs, those that end at this very update counted in."""
        n_made = np.asarray(self.runs.n_made)
        ended = np.asarray(self.runs.ended)
        objective = np.where(ended, np.inf, np.asarray(self.runs.state.objective))
        active = np.flatnonzero(~ended | (n_made == mark))
        dropped = np.zeros(self.n_runs, dtype=bool)
        dropped[active[is_worse_half(objective[active])]] = True
        self.runs = self.runs._replace(ended=self.runs.ended | jnp.asarray(dropped))

    @property
    def all_ended(self) -> bool:
        """Whether no run is active."""
        return bool(self.runs.ended.all())

    def run(self) -> Run:
        """Return the batch as the generic loop would."""
        runs = jax.device_get(self.runs._replace(window=None))
        paths = jax.device_get(self.recorded)
        n_made = np.concatenate([path.n_made for path in paths] or [runs.n_made[None]])
        diverged = ~np.isfinite(runs.state.objective) & (runs.n_made > 0)
        return Run(
            state=self._host_state(runs),
            objectives=_by_update(self.state.objective, [path.objective for path in paths], n_made),
            errors=_by_update(self.state.error, [path.error for path in paths], n_made),
            n_iter=runs.n_made.astype(np.int64),
            converged=runs.settled & ~diverged,
            diverged=diverged,
        )

    def _host_state(self, runs: _Runs) -> State:
        """Return the state without the rows that were added."""
        n_columns, state = self.p.L.shape[1], runs.state
        assert state.terms is not None
        C = double(state.C)
        y_B = y_C = None
        has_past = self.state.y_B is not None or runs.n_made.any()
        if has_past and state.y_B is not None:
            y_B = double(state.y_B[:, :n_columns])
            y_C = C if state.y_C is None else double(state.y_C)
        return State(
            B=double(state.B[:, :n_columns]),
            C=C,
            terms=Terms(double(state.terms.LC[:, :n_columns]), *state.terms[1:]),
            error=state.error,
            objective=state.objective,
            y_B=y_B,
            y_C=y_C,
            tau=double(state.tau),
            age=self.state.age + int(runs.n_made.max()),
        )


def _by_update(
    first: np.ndarray,
    by_tick: list[np.ndarray],
    n_made: np.ndarray,
) -> np.ndarray:
    """Return (batch, 1 + updates) from values by tick; after its end a run repeats its last value.

    A tick that made no update of a run repeats what stands there.
    """
    values = np.empty((int(n_made.max()) + 1, len(first)))
    values[0] = first
    ticks = np.concatenate(by_tick) if by_tick else first[None]
    in_step = np.arange(1, len(ticks) + 1)[:, None]
    if (n_made == in_step).all():
        values[1:] = ticks
        return values.T
    every_run = np.arange(len(first))
    for made, of_tick in zip(n_made, ticks, strict=True):
        values[made, every_run] = of_tick
    # Ticks after the end of a run have its last value.
    for run, last in enumerate(n_made[-1]):
        values[last:, run] = values[last, run]
    return values.T
