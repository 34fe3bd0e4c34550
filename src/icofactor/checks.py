"""Checks of parameters: one table of what each must be, used wherever one comes in.

Public functions check what they are given and call functions that trust them: a value is checked
once on its way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, shown


@dataclass(frozen=True)
class Whole:
    """A whole number, not below `least`."""

    least: int

    def accepts(self, value: Any) -> bool:
        return (
            isinstance(value, int | np.integer)
            and not isinstance(value, bool)
            and bool(value >= self.least)
        )

    def __str__(self) -> str:
        return f"a whole number ≥ {self.least}"


@dataclass(frozen=True)
class Number:
    """A finite number ≥ 0, or above 0; or one of `also`."""

    positive: bool = False
    also: tuple[Any, ...] = ()

    def accepts(self, value: Any) -> bool:
        if any(value is one or (isinstance(value, str) and value == one) for one in self.also):
            return True
        real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
            value, bool
        )
        return real and math.isfinite(value) and bool(value > 0 if self.positive else value >= 0)

    def __str__(self) -> str:
        return " or ".join(
            ["a positive number" if self.positive else "a number ≥ 0", *map(repr, self.also)]
        )


@dataclass(frozen=True)
class OneOf:
    """One of a few names."""

    names: tuple[str, ...]

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.names

    def __str__(self) -> str:
        return "one of " + ", ".join(map(repr, self.names))


Kind = Whole | Number | OneOf

PARAMETERS: dict[str, Kind] = {
    "faces": Whole(1),
    "level": Whole(0),
    "n_bootstrap": Whole(0),
    "n_components": Whole(1),
    "n_iter": Whole(0),
    "n_nulls": Whole(5),
    "n_permutations": Whole(0),
    "n_resamples": Whole(2),
    "n_spins": Whole(1),
    "n_splits": Whole(2),
    "n_starts": Whole(1),
    "n_subjects": Whole(1),
    "penalty": Number(also=("paper",)),
    "polish": Whole(0),
    "sigma": Number(positive=True, also=(None,)),
    "steps": Whole(0),
    "tol": Number(),
}
"""What each number must be, whichever function takes it."""


def check_value(argument: str, value: Any, kind: Kind) -> None:
    """Raise an ArgumentError unless the value is of that kind."""
    if not kind.accepts(value):
        raise ArgumentError(argument, f"must be {kind}; found {shown(value)}")


def check_parameters(part_of: str = "", /, **given: Any) -> None:
    """Raise an ArgumentError for the first value that its parameter does not allow.

    Parameters
    ----------
    part_of : the argument whose attributes these are, such as "refinement"; named with them.
    given : name → value, of names in `PARAMETERS`.
    """
    for name, value in given.items():
        check_value(f"{part_of}.{name}" if part_of else name, value, PARAMETERS[name])
