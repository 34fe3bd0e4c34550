"""Where the files of a cohort are: lists, globs, folders, and the trees of FreeSurfer, the HCP and fMRIPrep."""

from __future__ import annotations

from icofactor.cohort.find.files import find_sources
from icofactor.cohort.find.source import Found, Source, Wanted

__all__ = ["Found", "Source", "Wanted", "find_sources"]
