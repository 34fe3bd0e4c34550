"""Cohorts: X with its subjects, mesh, mask and hemisphere; simulation; writers. Knows only the sphere."""

from __future__ import annotations

from icofactor.cohort.cohort import Cohort, Truth
from icofactor.cohort.simulate import MODALITIES, simulate_cohort
from icofactor.cohort.write import (
    write_dataset_description,
    write_fit,
    write_json,
    write_maps,
    write_tsv,
)

__all__ = [
    "MODALITIES",
    "Cohort",
    "Truth",
    "simulate_cohort",
    "write_dataset_description",
    "write_fit",
    "write_json",
    "write_maps",
    "write_tsv",
]
