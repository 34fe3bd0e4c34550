"""Progress over named stages: a bar on a terminal, plain lines in a log; silent unless asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_watched: list[Callable[[str], None]] = []
"""How to say something beside the stages that are shown now, innermost last."""


def say(text: str) -> None:
    """Say what takes long, where progress is shown."""
    for how in _watched[-1:]:  # the last may end meanwhile: kernels are also compiled by another thread
        how(text)


class Stages:
    """Stages of a long call, each a fraction from 0 to 1."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[float], None]]:
        """A stage in progress; call what it gives with the fraction done."""
        if not self._shown:
            yield _ignore
            return
        if not sys.stderr.isatty():
            begin = time.perf_counter()
            print(f"{name} ...", file=sys.stderr, flush=True)
            with _heard(lambda text: print(text, file=sys.stderr, flush=True)):
                yield _ignore
            print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
            return
        from tqdm import tqdm

        bar: Any = tqdm(total=100, desc=f"{name:<12}", bar_format="{desc}{percentage:3.0f}%|{bar}| {elapsed}")

        def show(fraction: float) -> None:
            bar.update(round(100 * min(fraction, 1.0)) - bar.n)

        try:
            with _heard(lambda text: bar.write(text, file=sys.stderr)):
                yield show
            show(1.0)
        finally:
            bar.close()


@contextmanager
def _heard(how: Callable[[str], None]) -> Iterator[None]:
    _watched.append(how)
    try:
        yield
    finally:
        _watched.remove(how)


def _ignore(fraction: float) -> None:
    """Nobody is watching."""
