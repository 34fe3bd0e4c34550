"""The registry of methods: a scheme with an extrapolation (method.md §3)."""

from __future__ import annotations

from dataclasses import dataclass

from icofactor.errors import ArgumentError, literal
from icofactor.factorization.extrapolation import EXTRAPOLATIONS, PLAIN_UPDATES, Extrapolation
from icofactor.factorization.schemes import SCHEMES
from icofactor.factorization.schemes.base import Scheme


@dataclass(frozen=True)
class Method:
    """A scheme with an extrapolation; the eleven of the paper and what is added to them."""

    name: str
    scheme: Scheme
    extrapolation: Extrapolation | None
    plain_updates: int = PLAIN_UPDATES
    """Updates at the start of a run that are not extrapolated."""

    def takes_negative(self, center: str) -> bool:
        """Whether X may hold negative values: always, or because this (not "auto") is taken out of
        it first.
        """
        return self.scheme.signed_data or center != "none"

    def refusal(self, center: str) -> str | None:
        """Why X must not hold negative values, and which methods take them; None where it may."""
        return (
            None
            if self.takes_negative(center)
            else f"method {self.name!r} does not allow; use {for_negative_data()}"
        )


METHODS: dict[str, Method] = {}


def register(scheme: Scheme) -> None:
    """Add the methods of a scheme, one per extrapolation that it lists: how to use a scheme of your
    own.
    """
    SCHEMES[scheme.name] = scheme
    for prefix, extrapolation in scheme.extrapolations.items():
        name = prefix + scheme.name
        METHODS[name] = Method(name, scheme, extrapolation, scheme.plain_updates)


def unregister(scheme: Scheme) -> None:
    """Forget what `register` added."""
    del SCHEMES[scheme.name]
    for name in [name for name, method in METHODS.items() if method.scheme is scheme]:
        del METHODS[name]


for _scheme in list(SCHEMES.values()):
    register(_scheme)
PAPER_METHODS: tuple[str, ...] = tuple(
    name for name, method in METHODS.items() if method.scheme.in_paper
)


def method_named(name: str) -> Method:
    """The method of that name, or an error that says why it does not exist."""
    if isinstance(name, str) and name in METHODS:
        return METHODS[name]
    for prefix, extrapolation in EXTRAPOLATIONS.items():
        scheme = (
            SCHEMES.get(str(name).removeprefix(prefix))
            if prefix and str(name).startswith(prefix)
            else None
        )
        if (
            scheme is not None
            and extrapolation is not None
            and not extrapolation.signed
            and scheme.signed_maps
        ):
            others = " or ".join(
                repr(other) for other, method in METHODS.items() if method.scheme is scheme
            )
            raise ArgumentError(
                "method",
                None,
                f"{{method={literal(repr(name))}}} does not exist: {prefix} extrapolates logarithms and "
                f"{literal(scheme.text.name)} has negative values; use {literal(others)}",
            )
    raise ArgumentError("method", name, f"one of {literal(', '.join(METHODS))}")


def for_negative_data() -> str:
    """The methods that take negative values, listed: 'DL' or 'E-DL'."""
    names = [repr(name) for name, method in METHODS.items() if method.scheme.signed_data]
    return " or ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
