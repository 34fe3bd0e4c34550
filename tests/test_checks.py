"""One table of what parameters must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.refusals import refused
from icofactor.checks import PARAMETERS, Number, OneOf, Whole, check_parameters, check_value

WHOLE_NUMBERS = [name for name, kind in PARAMETERS.items() if isinstance(kind, Whole)]


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_whole_numbers(name: str) -> None:
    least = PARAMETERS[name].least
    check_parameters(**{name: least})
    check_parameters(**{name: np.int32(least + 1)})
    for value in (least - 1, float(least), "3", True, None, [3], np.array([5, 6])):
        with refused(name):
            check_parameters(**{name: value})


KINDS: list[tuple[Any, list[Any], list[Any]]] = [
    (
        Number(),
        [0, 0.5, np.float32(2), 7],
        [-1, np.nan, np.inf, "1", None, True, 1j, [1.0]],
    ),
    (Number(positive=True, also=(None,)), [1e-9, None], [0, "paper", -1]),
    (Number(also=("paper",)), [0, "paper"], ["big", None]),
    (OneOf(("a", "b")), ["a", "b"], ["c", None, 1, ["a"]]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), KINDS)
def test_kinds(kind: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        check_value("x", value, kind)
    for value in bad:
        with refused("x"):
            check_value("x", value, kind)


def test_attributes_are_named_with_their_argument() -> None:
    with refused("refinement.steps"):
        check_parameters("refinement", steps=-1)
