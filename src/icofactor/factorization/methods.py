"""The registry of methods: a scheme with an extrapolation (method.md §3)."""

from __future__ import annotations

from dataclasses import dataclass

from icofactor.factorization.extrapolation import EXTRAPOLATIONS, PLAIN_UPDATES, Extrapolation, nesterov
from icofactor.factorization.schemes import ADDED, SCHEMES
from icofactor.factorization.schemes.base import Scheme


@dataclass(frozen=True)
class Method:
    """A scheme with an extrapolation; the eleven of the paper and what is added to them."""

    name: str
    scheme: Scheme
    extrapolation: Extrapolation | None
    plain_updates: int = PLAIN_UPDATES
    """Updates at the start of a run that are not extrapolated."""


def _of_the_paper() -> dict[str, Method]:
    methods = {}
    for scheme in SCHEMES.values():
        for prefix, extrapolation in EXTRAPOLATIONS.items():
            if not (prefix == "LE-" and scheme.signed):  # logarithms have no sign
                name = prefix + scheme.name
                methods[name] = Method(name, scheme, extrapolation)
    return methods


def _added() -> dict[str, Method]:
    # coordinate descent starts on no plateau, and its steps are exact: momentum pays from the second update on
    return {scheme.name: Method(scheme.name, scheme, nesterov, plain_updates=1) for scheme in ADDED.values()}


PAPER_METHODS: tuple[str, ...] = tuple(_of_the_paper())
METHODS = {**_of_the_paper(), **_added()}


def method_named(name: str) -> Method:
    """The method of that name, or a sentence that says why there is none."""
    if name == "LE-DL":
        raise ValueError(
            "method 'LE-DL' does not exist: LE- extrapolates logarithms and dictionary learning has negative "
            "values; use 'E-DL'"
        )
    if name not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; found {name!r}")
    return METHODS[name]
