"""What an experiment gives: figures, tables, notes, and the facts by which the paper's claims are judged."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from icofactor.streaming.checkpoint import Arrays, Checkpoint
from icofactor_lab.reproduce.datasets import Dataset
from icofactor_lab.reproduce.settings import Sizes


@dataclass(frozen=True, eq=False)
class Plate:
    """A figure.

    Attributes
    ----------
    name : of its files.
    draw : makes the matplotlib figure.
    paper : what the paper's figure shows, in our words; "" where it has none.
    ours : what this one shows.
    """

    name: str
    draw: Callable[[], Any]
    paper: str
    ours: str


@dataclass(frozen=True, eq=False)
class Table:
    """A table: its file's name, its title, its columns, and what to know about it."""

    name: str
    title: str
    columns: Mapping[str, Sequence[Any]]
    note: str = ""


@dataclass(eq=False)
class Section:
    """One experiment of the page."""

    key: str
    title: str
    about: str
    plates: list[Plate] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Context:
    """What the experiments share.

    Attributes
    ----------
    datasets, sizes, seed
    work : where finished pieces are kept.
    show : told the fraction of the experiment that is done.
    seconds : time spent on the pieces in use, those of earlier runs included.
    """

    datasets: list[Dataset]
    sizes: Sizes
    seed: int
    work: Checkpoint
    show: Callable[[float], None] = lambda fraction: None
    seconds: float = 0.0

    def piece(self, key: str, compute: Callable[[], Arrays]) -> Arrays:
        """A piece of the work, made or taken from the work folder; warnings are kept with it."""

        def timed() -> Arrays:
            begin = time.perf_counter()
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                made = compute()
            words = sorted({str(one.message) for one in said if issubclass(one.category, UserWarning)})
            made["warnings"] = np.array(words, dtype=np.str_)
            made["seconds"] = np.array(time.perf_counter() - begin)
            return made

        found = self.work.piece(key, timed)
        self.seconds += float(found["seconds"])
        return found


def hoyer(x: np.ndarray) -> float:
    """Hoyer's sparsity of the columns, mean: 0 where all entries are equal, 1 where one is not zero."""
    n = len(x)
    sizes = np.linalg.norm(x, axis=0)
    known = sizes > 0
    if n < 2 or not known.any():
        return float("nan")
    return float(((np.sqrt(n) - np.abs(x).sum(axis=0)[known] / sizes[known]) / (np.sqrt(n) - 1)).mean())


def overlap(W: np.ndarray) -> float:
    """Mean cosine between the columns of W, sizes only: 0 where no two share a site."""
    sizes = np.linalg.norm(W, axis=0)
    V = np.abs(W[:, sizes > 0]) / sizes[sizes > 0]
    n = V.shape[1]
    if n < 2:
        return float("nan")
    return float(((V.T @ V).sum() - n) / (n * (n - 1)))
