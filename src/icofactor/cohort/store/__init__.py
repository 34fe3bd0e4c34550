"""The cohort store: one zarr 3 group, written in blocks of subjects and read in blocks of sites."""

from __future__ import annotations

from icofactor.cohort.store.create import (
    add_columns,
    append_store,
    create_store,
    remove_subjects,
    save_store,
)
from icofactor.cohort.store.layout import is_store
from icofactor.cohort.store.read import StoredCohort, open_store

__all__ = [
    "StoredCohort",
    "add_columns",
    "append_store",
    "create_store",
    "is_store",
    "open_store",
    "remove_subjects",
    "save_store",
]
