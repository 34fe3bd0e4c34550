"""Cohorts: X with its subjects, mesh, mask and hemisphere; simulation; writers. Knows only the sphere."""

from __future__ import annotations

from icofactor.cohort.cohort import Cohort, Truth
from icofactor.cohort.simulate import MODALITIES, simulate_cohort
from icofactor.cohort.store import (
    StoredCohort,
    append_store,
    compact_store,
    create_store,
    is_store,
    open_store,
    save_store,
)
from icofactor.cohort.tables import write_json, write_tsv
from icofactor.cohort.write import write_dataset_description, write_fit, write_maps

__all__ = [
    "MODALITIES",
    "Cohort",
    "StoredCohort",
    "Truth",
    "append_store",
    "compact_store",
    "create_store",
    "is_store",
    "open_store",
    "save_store",
    "simulate_cohort",
    "write_dataset_description",
    "write_fit",
    "write_json",
    "write_maps",
    "write_tsv",
]
