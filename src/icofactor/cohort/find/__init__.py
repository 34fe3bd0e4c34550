"""Where the files of a cohort are: what is looked for, and what was found; `files` tries the
layouts of folders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from icofactor.errors import ArgumentError
from icofactor.sphere.names import hemispheres


@dataclass(frozen=True)
class Wanted:
    """What the files must be.

    Attributes
    ----------
    hemisphere : "left", "right", "both", or None for whatever is there.
    measure : e.g. "thickness", "myelin", "reho"; None where the tree leaves no choice.
    smoothing : full width at half maximum in mm of the files to take, as their names say.
    target : the mesh the maps were brought to, e.g. "fsaverage5" or "32k".
    entities : BIDS entity → its value, e.g. {"task": "rest"}.
    known : names of subjects that a table lists, without "sub-".
    stream : "cross", "base" or "long", of FreeSurfer's folders.
    tables : whether tables of regions are looked for, not maps.
    """

    hemisphere: str | None = None
    measure: str | None = None
    smoothing: float | None = None
    target: str | None = None
    entities: Mapping[str, str] = field(default_factory=dict)
    known: Set[str] = frozenset()
    stream: str | None = None
    tables: bool = False

    def __post_init__(self) -> None:
        if self.smoothing is not None and not 0 <= self.smoothing < math.inf:
            raise ArgumentError("smoothing", self.smoothing, "a width in mm, 0 or more")

    @property
    def sides(self) -> tuple[str, ...]:
        """The hemispheres to look for."""
        return hemispheres(self.hemisphere or "both", "hemisphere")


@dataclass(frozen=True)
class Source:
    """One file: its subject, and its hemisphere where its name tells (None: both, or unknown)."""

    path: Path
    subject: str
    side: str | None


@dataclass
class Found:
    """The files of a cohort.

    Attributes
    ----------
    sources : in the order of the subjects.
    missing : subject → files that should be there and are not.
    measure : what was measured, where the names tell.
    mesh : name of the mesh, sphere files, or None; see `load_cohort`.
    civet : whether the maps are CIVET's, whose mesh has no name that says where its vertices lie.
    surfaces : file of maps → surfaces of its subject on that mesh: the page is drawn on the mean of
        some.
    notes : choices made on the way.
    """

    sources: list[Source] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    measure: str | None = None
    mesh: Any = None
    civet: bool = False
    surfaces: dict[Path, list[Path]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


N_DRAWN = (3, 10)
"""Subjects whose surfaces are averaged to draw on, at least (so that it is nobody's own) and at
most.
"""


def folders_in(root: Path) -> list[Path]:
    """The folders in a folder, by name; hidden ones left out."""
    return sorted(
        entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )


def names_in(folder: Path) -> list[str]:
    """The names of the files in a folder, sorted; empty when the folder does not exist."""
    return (
        sorted(entry.name for entry in folder.iterdir() if is_listed(entry))
        if folder.is_dir()
        else []
    )


def is_listed(entry: Path) -> bool:
    """Whether an entry is a file, or a link to one that is not there: git-annex has such, and
    reading says so.
    """
    return entry.is_file() or (entry.is_symlink() and not entry.exists())
