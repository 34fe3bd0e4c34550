"""Progress over named stages: a bar on a terminal, plain lines in a log; silent unless asked for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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
            yield _ignore
            print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
            return
        from tqdm import tqdm

        bar: Any = tqdm(
            total=100, desc=f"{name:<12}", bar_format="{desc}{percentage:3.0f}%|{bar}| {elapsed}"
        )

        def show(fraction: float) -> None:
            bar.update(round(100 * min(fraction, 1.0)) - bar.n)

        try:
            yield show
            show(1.0)
        finally:
            bar.close()


def _ignore(fraction: float) -> None:
    """Nobody is watching."""
