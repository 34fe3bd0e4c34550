"""The JAX engine: the generic functions of `update`, compiled into one loop on whatever device JAX
finds.

Nothing is computed here that is not defined elsewhere: a tick of the loop is `update.propose`,
`update.risen` and `update.settled`, traced. Each run keeps its own count of updates. Where
extrapolation raised the objective, the run stays where it was and makes the plain update in the
next tick (weight 0), while the others go on: a batch never waits for, nor pays for, the restarts of
a few. So runs that restarted need more ticks, and ticks go on until all are there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from icofactor.factorization._solve import Course, Run
from icofactor.factorization.arrays import Array, where_each
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

STRETCH, SHORT_STRETCH = 25, 10
"""Ticks of one compiled loop, between two looks at who has ended; the short one where fewer updates
are asked for.
"""
UNROLL = 5
"""Ticks written out one after the other on an accelerator, where the loop itself costs; on the CPU
one.
"""
_MEMORY_SHARE, _DEFAULT_BYTES = 0.25, 256 * 2**20
_FEW_RUNS = 16


_ARRAYS = [field.name for field in fields(State) if field.name != "age"]
jax.tree_util.register_dataclass(State, data_fields=_ARRAYS, meta_fields=["age"])


class _Runs(NamedTuple):
    """A batch on the device.

    In `state` y_B is None without extrapolation, y_C where it equals C, and age is 0. `made` counts
    updates, `plain` says that the next one is not extrapolated, `ended` and `settled` that the run
    left the finite numbers or met tol. `window` holds the last objectives, as many as tol looks at.
    """

    state: State
    made: Array
    plain: Array
    ended: Array
    settled: Array
    window: Array | None


class _Path(NamedTuple):
    """(ticks, batch) each: what was recorded after every tick; `made` is None where every tick is
    an update.
    """

    objective: Array
    error: Array
    made: Array | None


# ---------------------------------------------------------------- on the device


def _tick(p: Problem, method: Method, target: Array, age: Array, tol: Array, r: _Runs) -> _Runs:
    """One update of every run that is going and has not yet made `target` updates."""
    s, plain = r.state, r.plain
    accept, tau = ~r.ended & (r.made < target), s.tau
    if method.extrapolation is None:
        new = propose(p, method, s)
    else:
        new = propose(p, method, s, jnp.where(r.plain, 0.0, momentum(tau)))
        advanced = jnp.where(r.plain, tau, next_tau(tau))
        if not p.literal:
            rejected = accept & ~r.plain & risen(p, s, new)
            accept = accept & ~rejected
            tau, plain = jnp.where(rejected, TAU_START, tau), plain | rejected
        tau = jnp.where(accept, advanced, tau)
        plain = jnp.where(accept, age + r.made + 1 < method.plain_updates, plain)
    keep = lambda old, new: (
        where_each(accept, new, old) if old.ndim == 3 else jnp.where(accept, new, old)
    )
    state, made = replace(s.map(keep, new), tau=tau), r.made + accept
    objective = state.objective
    ended, settled, window = r.ended | ~jnp.isfinite(objective) & accept, r.settled, r.window
    if window is not None:
        window = jnp.where(accept, jnp.concatenate([window[1:], objective[None]]), window)
        scheme = method.scheme
        settled = settled | accept & (made >= scheme.first_look) & has_settled(
            window, tol, scheme.plateau
        )
        ended = ended | settled
    return _Runs(state, made, plain, ended, settled, window)


def _march(p: Problem, method: Method, age: Array, r: _Runs) -> _Runs:
    """`_tick` where no run restarts or ends before the others: nothing to hold back, and a tenth
    faster for it.
    """
    s, made, tau = r.state, r.made + 1, r.state.tau
    if method.extrapolation is None:
        new = propose(p, method, s)
    else:
        new = propose(p, method, s, jnp.where(r.plain, 0.0, momentum(tau)))
        tau = jnp.where(r.plain, tau, next_tau(tau))
    state = replace(s.map(lambda old, new: new, new), tau=tau)
    return r._replace(state=state, made=made, plain=age + made < method.plain_updates)


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
    together: bool,
    n_ticks: int,
    unroll: int,
) -> tuple[_Runs, _Path, Array]:
    """`n_ticks` ticks; also what they recorded, and (how many runs still go on, least updates made
    by these).
    """
    L, K, row_sums, weights, penalty, sq_norm, L_norm = numbers
    p = Problem(L, K, row_sums, weights, penalty, sq_norm, L_norm, literal, signed)

    def step(r: _Runs, _: None) -> tuple[_Runs, _Path]:
        r = _march(p, method, age, r) if together else _tick(p, method, target, age, tol, r)
        return r, _Path(r.state.objective, r.state.error, None if together else r.made)

    runs, path = jax.lax.scan(step, runs, None, length=n_ticks, unroll=unroll)
    going = ~runs.ended & (runs.made < target)
    return runs, path, jnp.stack([going.sum(), jnp.where(going, runs.made, target).min()])


@cache
def _compiled() -> Callable[..., tuple[_Runs, _Path, Array]]:
    """`_stretch`, compiled once for each method, rules and shapes."""
    fixed = ("method", "literal", "signed", "together", "n_ticks", "unroll")
    return jax.jit(_stretch, static_argnames=fixed, donate_argnames="runs")


# ---------------------------------------------------------------- on the host


def iterate(p: Problem, method: Method, state: State, course: Course) -> Run:
    """`solver.iterate` on JAX's device; NumPy arrays come in and go out.

    Runs end at the very update at which they would there: by `tol`, by halving, or out of the
    finite numbers. Those that ended stay in the batch, held still. The user's JAX settings stay as
    they are. `on_update` is called after stretches of updates, not after each.
    """
    n_iter, halve_at = course.n_iter, course.halve_at
    with settings():
        batch = _Batch(p, method, state, course)
        for mark in sorted({h for h in halve_at if 0 < h < n_iter} | {n_iter}) if n_iter else []:
            batch.reach(mark)
            if mark in halve_at:
                batch.halve(mark)
            if batch.all_ended:
                break
        return batch.run()


def settings() -> AbstractContextManager[Any]:
    """float64 where asked for, and products in full precision, in this thread and for now only."""
    from contextlib import ExitStack

    stack = ExitStack()
    if hasattr(jax, "enable_x64"):
        stack.enter_context(jax.enable_x64(True))
    else:  # before 0.8
        from jax.experimental import enable_x64

        stack.enter_context(enable_x64())
    stack.enter_context(jax.default_matmul_precision("highest"))
    return stack


def memory_limit() -> int | None:
    """Bytes that JAX may use of the device's memory; None where it does not say, as on the CPU."""
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return None if limit is None else int(limit)


def batch_bytes() -> int:
    """Memory that the factors of one batch may take: a quarter of the device's, or a safe default."""
    limit = memory_limit()
    return _DEFAULT_BYTES if limit is None else int(_MEMORY_SHARE * limit)


def has_accelerator() -> bool:
    """Whether JAX computes anywhere but on the CPU."""
    return bool(jax.default_backend() != "cpu")


def bucket(n: int, power_of_two: bool = False) -> int:
    """`n` rounded up, by an eighth at most (or to a power of two), so that few sizes need
    compiling.
    """
    power = 1 << max(n - 1, 0).bit_length()
    step = power if power_of_two else max(1, power // 16)
    return -(-n // step) * step


class _Batch:
    """The runs on the device, and what was recorded of them."""

    def __init__(self, p: Problem, method: Method, state: State, course: Course) -> None:
        self.p, self.method, self.state = p, method, state
        self.n_iter, self.tol, self.on_update = course.n_iter, course.tol, course.on_update
        self.n = len(state.error)
        self.n_k = bucket(p.L.shape[1], power_of_two=self.n < _FEW_RUNS)
        self.n_ticks = STRETCH if self.n_iter >= STRETCH else SHORT_STRETCH
        free = p.literal or method.extrapolation is None
        self.together = not course.halve_at and self.tol == 0 and free
        self.at = 0
        self.recorded: list[_Path] = []
        self.numbers = self._numbers()
        self.runs = self._loaded()

    def _rows(self, x: np.ndarray, axis: int) -> np.ndarray:
        """`x` in float64, with zero rows of B up to the bucket: 0 ⊘ 0 = 0, so they stay zero."""
        pad = [(0, 0)] * x.ndim
        pad[axis] = (0, self.n_k - x.shape[axis])
        return np.pad(np.asarray(x, dtype=np.float64), pad)

    def _numbers(self) -> tuple[Array, ...]:
        p = self.p
        K = np.asarray(p.K.toarray() if hasattr(p.K, "toarray") else p.K)  # sparse, or not
        K = self._rows(K, 0) if K.ndim == 1 else self._rows(self._rows(K, 0), 1)
        arrays = (self._rows(p.L, 1), K, self._rows(p.row_sums, 0), self._rows(p.weights, 0))
        return tuple(
            map(jnp.asarray, (*arrays, *map(np.float64, (p.penalty, p.sq_norm, p.L_norm))))
        )

    def _loaded(self) -> _Runs:
        """The state on the device."""
        s, flat = self.state, lambda x: np.asarray(x, dtype=np.float64)
        extrapolating = self.method.extrapolation is not None
        y_B, y_C = (s.B, s.C) if s.y_B is None else (s.y_B, s.y_C)
        false = np.zeros(self.n, dtype=bool)
        assert s.terms is not None
        state = State(
            self._rows(s.B, 1),
            flat(s.C),
            Terms(self._rows(s.terms.LC, 1), flat(s.terms.CC), flat(s.terms.G)),
            flat(s.error),
            flat(s.objective),
            self._rows(y_B, 1) if extrapolating else None,
            flat(y_C) if carries_C(self.p, self.method) else None,
            flat(s.tau),
            0,
        )
        plain = false | (s.y_B is None or s.age < self.method.plain_updates)
        runs = _Runs(state, np.zeros(self.n, dtype=np.int32), plain, false, false, None)
        runs = jax.tree.map(jnp.asarray, runs)
        if self.tol == 0:
            return runs
        return runs._replace(
            window=jnp.tile(runs.state.objective, (TOL_WINDOW + TOL_LOOKBACK + 1, 1))
        )

    # ------------------------------------------------------------ going on

    def reach(self, mark: int) -> None:
        """All runs that still go on up to update number `mark`.

        The host looks at a stretch while the device is at the next one, as long as there must be a
        next one.
        """
        least, looks = -(-(mark - self.at) // self.n_ticks), []
        while True:
            looks.append(self._dispatch(mark))
            if len(looks) == 1 < least:
                continue
            left, made = map(int, np.asarray(looks[-1 if len(looks) >= least else -2]))
            if self.on_update is not None:
                self.on_update(made)
            if left == 0:
                break
        self.at = mark

    def _dispatch(self, mark: int) -> Array:
        """Start a stretch; a look at how far it got, which need not be ready yet."""
        done = sum(len(path.objective) for path in self.recorded)
        n_ticks = min(self.n_ticks, mark - done) if self.together else self.n_ticks
        self.runs, path, look = _compiled()(
            self.numbers,
            self.runs,
            np.int32(mark),
            np.int32(self.state.age),
            np.float64(self.tol),
            method=self.method,
            literal=self.p.literal,
            signed=self.p.signed,
            together=self.together,
            n_ticks=n_ticks,
            unroll=UNROLL if has_accelerator() else 1,
        )
        self.recorded.append(path)
        return look

    def halve(self, mark: int) -> None:
        """The worse half of those still going ends, those that end at this very update counted in."""
        made, ended, objective = map(
            np.asarray, (self.runs.made, self.runs.ended, self.runs.state.objective)
        )
        active = np.flatnonzero(~ended | (made == mark))
        rank = np.argsort(np.argsort(np.where(ended, np.inf, objective)[active], kind="stable"))
        drop = np.zeros(self.n, dtype=bool)
        drop[active[rank >= max(1, len(active) // 2)]] = True
        self.runs = self.runs._replace(ended=self.runs.ended | jnp.asarray(drop))

    @property
    def all_ended(self) -> bool:
        return bool(np.asarray(self.runs.ended).all())

    # ------------------------------------------------------------ the end

    def run(self) -> Run:
        """The batch as the generic loop would return it."""
        runs = jax.device_get(self.runs._replace(window=None))
        objectives, errors = self._histories(int(runs.made.max()))
        if self.together:  # runs that left the finite numbers went on among the others
            made = _updates_to_the_end(objectives)
            state = replace(runs.state, objective=objectives[np.arange(self.n), made])
            runs = runs._replace(state=state, made=made)
            objectives, errors = (x[:, : runs.made.max() + 1] for x in (objectives, errors))
        state = self._state(runs)
        for i in np.flatnonzero(runs.made < objectives.shape[1] - 1):
            objectives[i, runs.made[i] :], errors[i, runs.made[i] :] = (
                x[i, runs.made[i]] for x in (objectives, errors)
            )
        diverged = ~np.isfinite(runs.state.objective) & (runs.made > 0)
        return Run(
            state,
            objectives,
            errors,
            runs.made.astype(np.int64),
            runs.settled & ~diverged,
            diverged,
        )

    def _state(self, runs: _Runs) -> State:
        n_k, double = self.p.L.shape[1], lambda x: np.ascontiguousarray(x, dtype=np.float64)
        s, B, C = runs.state, double(runs.state.B[:, :n_k]), double(runs.state.C)
        assert s.terms is not None
        terms = Terms(double(s.terms.LC[:, :n_k]), *s.terms[1:])
        known = self.state.y_B is not None or runs.made.any()
        y_B = double(s.y_B[:, :n_k]) if known and s.y_B is not None else None
        y_C = None if y_B is None else C if s.y_C is None else double(s.y_C)
        return State(
            B,
            C,
            terms,
            s.error,
            s.objective,
            y_B,
            y_C,
            double(s.tau),
            self.state.age + int(runs.made.max()),
        )

    def _histories(self, n_updates: int) -> tuple[np.ndarray, np.ndarray]:
        """Objectives and errors by update, from what was recorded by tick."""
        paths = jax.device_get(self.recorded)
        objectives = np.concatenate(
            [self.state.objective[None], *(path.objective for path in paths)]
        )
        errors = np.concatenate([self.state.error[None], *(path.error for path in paths)])
        if paths and paths[0].made is not None:
            made = np.concatenate([path.made for path in paths])
            ticks = np.arange(1, len(made) + 1)
            if not (made == ticks[:, None]).all():
                objectives = _by_update(objectives, made, n_updates)
                errors = _by_update(errors, made, n_updates)
        return objectives[: n_updates + 1].T, errors[: n_updates + 1].T


def _by_update(by_tick: np.ndarray, made: np.ndarray, n_updates: int) -> np.ndarray:
    """(1 + updates, batch) from (1 + ticks, batch): a tick that made no update repeats what stands
    there.
    """
    every_run = np.arange(by_tick.shape[1])
    by_update = np.empty((n_updates + 1, by_tick.shape[1]))
    by_update[0] = by_tick[0]
    for n_made, values in zip(made, by_tick[1:], strict=True):
        by_update[n_made, every_run] = values
    return by_update


def _updates_to_the_end(objectives: np.ndarray) -> np.ndarray:
    """How many updates each run made before, and including, the one that left the finite numbers."""
    lost = ~np.isfinite(objectives[:, 1:])
    return np.where(lost.any(axis=1), lost.argmax(axis=1) + 1, lost.shape[1])
