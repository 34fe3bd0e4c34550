"""The registry of methods: a scheme with an extrapolation."""

from __future__ import annotations

from dataclasses import dataclass

from icofactor.errors import ArgumentError, shown
from icofactor.factorization.extrapolation import (
    EXTRAPOLATIONS,
    PLAIN_UPDATES,
    Extrapolation,
)
from icofactor.factorization.schemes import SCHEMES
from icofactor.factorization.schemes.base import Scheme


@dataclass(frozen=True)
class Method:
    """A scheme with an extrapolation.

    Attributes
    ----------
    name, scheme : str, Scheme
    extrapolation : Extrapolation or None; None: plain updates
    plain_updates : updates at the start of a run that are not extrapolated
    """

    name: str
    scheme: Scheme
    extrapolation: Extrapolation | None
    plain_updates: int = PLAIN_UPDATES

    def takes_negative(self, center: str) -> bool:
        """Return whether X may hold negative values, after `center` (not "auto") is taken out."""
        return self.scheme.signed_data or center != "none"

    def refusal(self, center: str) -> str | None:
        """Return why X must not be negative, and which methods take such values; None if it may."""
        if self.takes_negative(center):
            return None
        return f"method {self.name!r} does not allow; use {for_negative_data()}"


# All methods by name, the eleven of the paper first.
METHODS: dict[str, Method] = {}


def register(scheme: Scheme) -> None:
    """Add the methods of a scheme, one per extrapolation that it lists.

    This is how to use a scheme of your own.
    """
    SCHEMES[scheme.name] = scheme
    for prefix, extrapolation in scheme.extrapolations.items():
        name = prefix + scheme.name
        METHODS[name] = Method(name, scheme, extrapolation, scheme.plain_updates)


def unregister(scheme: Scheme) -> None:
    """Remove what `register` added."""
    del SCHEMES[scheme.name]
    for name in names_of(scheme):
        del METHODS[name]


def names_of(scheme: Scheme) -> list[str]:
    """Return the names of the methods of a scheme."""
    return [name for name, method in METHODS.items() if method.scheme is scheme]


for _scheme in list(SCHEMES.values()):
    register(_scheme)
PAPER_METHODS: tuple[str, ...] = tuple(
    name for name, method in METHODS.items() if method.scheme.in_paper
)


def method_named(name: str) -> Method:
    """Return the method of that name, or raise an error that says why it does not exist."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    prefix, hyphen, scheme_name = str(name).partition("-")
    extrapolation = EXTRAPOLATIONS.get(prefix + hyphen)
    scheme = SCHEMES.get(scheme_name)
    if extrapolation and scheme and scheme.signed_maps and not extrapolation.signed:
        reason = (
            f"{name!r} does not exist: {prefix}- extrapolates logarithms and "
            f"{scheme.text.name} has negative values; use {quoted(names_of(scheme))}"
        )
        raise ArgumentError("method", reason)
    raise ArgumentError("method", f"must be one of {', '.join(METHODS)}; found {shown(name)}")


def for_negative_data() -> str:
    """Return the methods that take negative values as text, as in 'DL' or 'E-DL'."""
    names = [name for name, method in METHODS.items() if method.scheme.signed_data]
    return quoted(names)


def quoted(names: list[str]) -> str:
    """Return names as text, as in 'a', 'b' or 'c'."""
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}" if first else last
