"""Cohorts: X with its subjects, mesh, mask and hemisphere; simulation; writers. Knows only the
sphere.
"""

from __future__ import annotations

from icofactor.cohort.cohort import Cohort, Truth
from icofactor.cohort.load import load_cohort
from icofactor.cohort.measures import JoinedCohort, join_measures
from icofactor.cohort.simulate import MODALITIES, simulate_cohort
from icofactor.cohort.store.create import (
    add_columns,
    append_store,
    create_store,
    remove_subjects,
    save_store,
)
from icofactor.cohort.store.layout import is_store
from icofactor.cohort.store.read import StoredCohort, open_store
from icofactor.io.cifti import write_dscalar
from icofactor.io.freesurfer import write_annot
from icofactor.io.gifti import write_label_gii, write_maps
from icofactor.io.tables import write_json, write_tsv
from icofactor.sphere.names import mesh_name_of

__all__ = [
    "MODALITIES",
    "Cohort",
    "JoinedCohort",
    "StoredCohort",
    "Truth",
    "add_columns",
    "append_store",
    "create_store",
    "is_store",
    "join_measures",
    "load_cohort",
    "mesh_name_of",
    "open_store",
    "remove_subjects",
    "save_store",
    "simulate_cohort",
    "write_annot",
    "write_dscalar",
    "write_json",
    "write_label_gii",
    "write_maps",
    "write_tsv",
]
