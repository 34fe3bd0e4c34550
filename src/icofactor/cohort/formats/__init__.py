"""One reader per file format; every one checks sizes before it allocates, and runs no code of the file.

The readers are the package's own: they see files of any origin, and must neither crash, nor fill the memory, nor open
other files, whatever a header claims. The tests compare them with nibabel.
"""

from __future__ import annotations

from icofactor.cohort.formats.common import Maps
from icofactor.cohort.formats.read import MAP_ENDINGS, is_map, read_maps, reading, without_ending
from icofactor.reading import Unreadable

__all__ = ["MAP_ENDINGS", "Maps", "Unreadable", "is_map", "read_maps", "reading", "without_ending"]
