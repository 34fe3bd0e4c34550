"""The registry of methods: a scheme with an extrapolation (method.md §3)."""

from __future__ import annotations

from dataclasses import dataclass

from icofactor.extrapolation import EXTRAPOLATIONS, Extrapolation
from icofactor.schemes import SCHEMES, Scheme


@dataclass(frozen=True)
class Method:
    """A scheme with an extrapolation; the eleven of the paper and what is added to them."""

    name: str
    scheme: Scheme
    extrapolation: Extrapolation | None


def _registry() -> dict[str, Method]:
    methods = {}
    for scheme in SCHEMES.values():
        for prefix, extrapolation in EXTRAPOLATIONS.items():
            if not (prefix == "LE-" and scheme.signed):  # logarithms have no sign
                name = prefix + scheme.name
                methods[name] = Method(name, scheme, extrapolation)
    return methods


METHODS = _registry()
PAPER_METHODS: tuple[str, ...] = tuple(METHODS)


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
