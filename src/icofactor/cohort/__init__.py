"""Cohorts: X with its subjects, mesh, mask and hemisphere; simulation; writers. Knows only the sphere."""

from __future__ import annotations

from icofactor.cohort.bids import mesh_name_of
from icofactor.cohort.cifti import write_dscalar
from icofactor.cohort.cohort import Cohort, Truth
from icofactor.cohort.gifti import write_label_gii, write_maps
from icofactor.cohort.labels import distinct_colours, winner_takes_all, write_annot
from icofactor.cohort.load import load_cohort
from icofactor.cohort.methods_text import methods_text
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
from icofactor.cohort.write import write_dataset_description, write_fit

__all__ = [
    "MODALITIES",
    "Cohort",
    "StoredCohort",
    "Truth",
    "append_store",
    "compact_store",
    "create_store",
    "distinct_colours",
    "is_store",
    "load_cohort",
    "mesh_name_of",
    "methods_text",
    "open_store",
    "save_store",
    "simulate_cohort",
    "winner_takes_all",
    "write_annot",
    "write_dataset_description",
    "write_dscalar",
    "write_fit",
    "write_json",
    "write_label_gii",
    "write_maps",
    "write_tsv",
]
