"""One table of what parameters must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from icofactor.checks import PARAMETERS, Number, OneOf, Whole, check_parameters, check_value
from icofactor.errors import ArgumentError


@pytest.mark.parametrize(
    "name", [name for name, kind in PARAMETERS.items() if isinstance(kind, Whole)]
)
def test_whole_numbers(name: str) -> None:
    kind = PARAMETERS[name]
    assert isinstance(kind, Whole)
    check_parameters(**{name: kind.least})
    check_parameters(**{name: np.int32(kind.least + 1)})
    for value in (kind.least - 1, float(kind.least), "3", True, None, [3], np.array([5, 6])):
        with pytest.raises(
            ArgumentError, match=f"{name} must be a whole number ≥ {kind.least}; found "
        ) as refused:
            check_parameters(**{name: value})
        assert (refused.value.argument, refused.value.expected) == (
            name,
            f"a whole number ≥ {kind.least}",
        )


@pytest.mark.parametrize(
    ("kind", "good", "bad", "says"),
    [
        (
            Number(),
            [0, 0.5, np.float32(2), 7],
            [-1, np.nan, np.inf, "1", None, True, 1j, [1.0]],
            "a number ≥ 0",
        ),
        (
            Number(positive=True, also=(None,)),
            [1e-9, None],
            [0, "paper", -1],
            "a positive number or None",
        ),
        (Number(also=("paper",)), [0, "paper"], ["big", None], "a number ≥ 0 or 'paper'"),
        (OneOf(("a", "b")), ["a", "b"], ["c", None, 1, ["a"]], "one of 'a', 'b'"),
    ],
)
def test_kinds(kind: Any, good: list[Any], bad: list[Any], says: str) -> None:
    for value in good:
        check_value("x", value, kind)
    for value in bad:
        with pytest.raises(ArgumentError) as refused:
            check_value("x", value, kind)
        assert (refused.value.argument, refused.value.expected) == ("x", says)


def test_attributes_are_named_with_their_argument() -> None:
    with pytest.raises(
        ArgumentError, match=r"refinement\.steps must be a whole number ≥ 0; found -1"
    ) as refused:
        check_parameters("refinement", steps=-1)
    assert (refused.value.argument, refused.value.found) == ("refinement.steps", -1)
