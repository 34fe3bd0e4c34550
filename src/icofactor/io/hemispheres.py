"""Hemispheres: what an argument may say, and what the name of a file says."""

from __future__ import annotations

import re
from typing import Any

from icofactor.errors import ArgumentError

SIDES = ("left", "right")
"""The hemispheres, in the order of their columns."""
HEMISPHERES = (*SIDES, "both")
"""What the argument `hemi` may be."""
_NAMES = {"l": "left", "lh": "left", "left": "left", "r": "right", "rh": "right", "right": "right"}
# From the surest to the least sure way of writing a hemisphere; the least sure ones in capitals
# only.
_HEMISPHERE = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:^|[._])hemi-(L|R)(?=[._]|$)",
        r"(?:^|[._-])(lh|rh)(?=[._-]|$)",
        r"(?:^|[._-])([Ll]eft|[Rr]ight)(?=[._-]|$)",
        r"(?:^|[._-])(L|R)(?=[._-]|$)",
    )
)


def hemispheres(hemi: Any, argument: str = "hemi") -> tuple[str, ...]:
    """("left",), ("right",) or both, left first.

    Parameters
    ----------
    hemi : "left", "right" or "both".
    argument : what the caller calls it, for the error.
    """
    if hemi is None:
        raise ArgumentError(
            argument, None, f"{{{argument}}} is not known: pass {{{argument}='left' or 'right'}}"
        )
    if not isinstance(hemi, str) or hemi not in HEMISPHERES:
        raise ArgumentError(argument, hemi, "'left', 'right' or 'both'")
    return SIDES if hemi == "both" else (hemi,)


def side_of(name: str) -> tuple[str | None, str]:
    """The hemisphere a name tells of, "left", "right" or None, and the name without it."""
    for pattern in _HEMISPHERE:
        found = list(pattern.finditer(name))
        sides = {_NAMES[match[1].lower()] for match in found}
        if len(sides) == 1:
            first = found[0]
            return sides.pop(), (name[: first.start()] + name[first.end() :]).strip("._-")
        if sides:
            return None, name
    return None, name
