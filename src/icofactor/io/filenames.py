"""What the name of a file says about the hemisphere."""

from __future__ import annotations

import re

_SIDES = {"l": "left", "lh": "left", "left": "left", "r": "right", "rh": "right", "right": "right"}
# From the surest to the least sure way of writing a hemisphere; the least sure ones in capitals only.
_HEMISPHERE = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:^|[._])hemi-(L|R)(?=[._]|$)",
        r"(?:^|[._-])(lh|rh)(?=[._-]|$)",
        r"(?:^|[._-])([Ll]eft|[Rr]ight)(?=[._-]|$)",
        r"(?:^|[._-])(L|R)(?=[._-]|$)",
    )
)


def side_of(name: str) -> tuple[str | None, str]:
    """The hemisphere a name tells of, "left", "right" or None, and the name without it."""
    for pattern in _HEMISPHERE:
        found = list(pattern.finditer(name))
        sides = {_SIDES[match[1].lower()] for match in found}
        if len(sides) == 1:
            first = found[0]
            return sides.pop(), (name[: first.start()] + name[first.end() :]).strip("._-")
        if sides:
            return None, name
    return None, name
