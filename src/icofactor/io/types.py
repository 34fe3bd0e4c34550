"""What every reader returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Maps:
    """The maps of one file.

    Attributes
    ----------
    parts : hemisphere → (n_maps, n_vertices); "left", "right", or None where the file does not say.
    reader : the format.
    names : one name per map, or none at all.
    columns : name → one value per map (npz).
    mask : (n_vertices of all parts,) bool that came with the maps, or None.
    array : name of the array that holds the maps (npz).
    step : seconds between the maps of a time series, or None.
    notes : what the reader left out.
    regions : names of the columns, where they are regions of an atlas.
    atlas : hemisphere → region of each vertex and the names of regions, where the file says where
        they lie.
    """

    parts: Mapping[str | None, NDArray[Any]]
    reader: str
    names: tuple[str, ...] = ()
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    mask: NDArray[np.bool_] | None = None
    array: str = ""
    step: float | None = None
    notes: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    atlas: Mapping[str, tuple[NDArray[np.int64], dict[int, str]]] = field(default_factory=dict)

    @property
    def n_maps(self) -> int:
        """Number of maps, the same in both hemispheres."""
        return len(next(iter(self.parts.values())))
