"""The cohort store: one zarr 3 directory, written in blocks of subjects and read in blocks of
sites.
"""

from __future__ import annotations

from icofactor.cohort.store.create import append_store, compact_store, create_store, save_store
from icofactor.cohort.store.layout import is_store
from icofactor.cohort.store.read import StoredCohort, open_store

__all__ = [
    "StoredCohort",
    "append_store",
    "compact_store",
    "create_store",
    "is_store",
    "open_store",
    "save_store",
]
