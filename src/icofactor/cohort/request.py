"""What a caller asks of files: which to choose, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from icofactor.errors import ArgumentError, shown
from icofactor.sphere.names import hemispheres


@dataclass(frozen=True, eq=False)
class Request:
    """The arguments of `load_cohort` that choose files and say how to read them.

    Attributes
    ----------
    hemisphere, measure, smoothing, target, entities, stream : choose files; see `load_cohort`.
    mesh, mask, map_name, modality, units, holes, n_threads : say how to read them.
    listed : names of subjects that a table of participants lists, without "sub-".
    tables : whether to look for tables of regions instead of maps.
    """

    hemisphere: str | None = None
    measure: str | None = None
    smoothing: float | None = None
    target: str | None = None
    entities: Mapping[str, str] = field(default_factory=dict)
    stream: str | None = None
    mesh: Any = None
    mask: Any = None
    map_name: str | int | None = None
    modality: str | None = None
    units: str | None = None
    holes: bool = False
    n_threads: int | None = None
    listed: Set[str] = frozenset()
    tables: bool = False

    def __post_init__(self) -> None:
        if self.smoothing is not None and not 0 <= self.smoothing < math.inf:
            raise ArgumentError(
                "smoothing", f"must be a width in mm, 0 or more; found {shown(self.smoothing)}"
            )
        hemispheres(self.hemisphere or "both", "hemisphere")

    @property
    def sides(self) -> tuple[str, ...]:
        """The hemispheres to look for."""
        return hemispheres(self.hemisphere or "both", "hemisphere")
