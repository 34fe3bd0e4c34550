"""Hemispheres: what an argument may say, and what the name of a file says."""

from __future__ import annotations

import re

from icofactor.errors import ArgumentError, shown

# The hemispheres, in the order of their columns.
SIDES = ("left", "right")
# What the argument `hemi` may be.
HEMISPHERES = (*SIDES, "both")
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


def hemispheres(
    hemi: object,
    argument: str = "hemi",
) -> tuple[str, ...]:
    """Return ("left",), ("right",) or both, left first.

    Parameters
    ----------
    hemi : "left", "right" or "both".
    argument : what the caller calls it, for the error.
    """
    if not isinstance(hemi, str) or hemi not in HEMISPHERES:
        raise ArgumentError(argument, f"must be 'left', 'right' or 'both'; found {shown(hemi)}")
    return SIDES if hemi == "both" else (hemi,)


def side_of(name: str) -> tuple[str | None, str]:
    """Return the hemisphere in a file's name, or None, and the name without it."""
    for pattern in _HEMISPHERE:
        matches = list(pattern.finditer(name))
        sides = {_NAMES[match[1].lower()] for match in matches}
        if len(sides) > 1:
            return None, name
        if sides:
            start, end = matches[0].span()
            return sides.pop(), (name[:start] + name[end:]).strip("._-")
    return None, name
