"""The few names that golden tests use and that will change: this file changes with them, the figures do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pandas as pd

import icofactor as ico


def run_command(*words: object) -> None:
    """Run `icofactor WORDS...` in this process; anything but success fails the test."""
    from icofactor.cli.main import main

    status = main([str(word) for word in words])
    assert status == 0, f"icofactor {' '.join(map(str, words))} ended with status {status}"


def fit_on_cluster(model: ico.CorticalFactorization, X: Any) -> ico.CorticalFactorization:
    """Fit on two workers of a Dask cluster."""
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address=":0",
        silence_logs="CRITICAL",
    )
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        return model.fit(X, executor=client.get_executor())


def open_store(path: Path) -> Any:
    """Open a cohort store."""
    return ico.cohort.open_store(path)


def save_store(cohort: ico.Cohort, path: Path, **options: Any) -> Any:
    """Write a cohort store and open it."""
    return ico.cohort.save_store(cohort, path, **options)


def save_tall_store(cohort: ico.Cohort, path: Path) -> Any:
    """Write a cohort store of which one chunk holds all sites, and open it."""
    return ico.cohort.create_store(path, [cohort], chunk_sites=cohort.sites.n)


# Tables of a fit by what they hold; the names of the files may change.
TABLES = {
    "loadings": "desc-icofactor_loadings.tsv",
    "components": "desc-icofactor_components.tsv",
    "subjects": "tables/subjects.tsv",
    "similarity": "tables/similarity.tsv",
    "correlations": "tables/correlations.tsv",
    "groups": "tables/groups.tsv",
}


def result_table(folder: Path, name: str) -> pd.DataFrame:
    """Read a table of a fit."""
    return pd.read_csv(folder / TABLES[name], sep="\t")


def component_maps(folder: Path) -> np.ndarray:
    """Read the maps that a fit wrote: components × vertices, left then right."""
    files = sorted(folder.glob("hemi-*_components.shape.gii"))
    sides = [np.array([array.data for array in nibabel.load(file).darrays]) for file in files]
    return np.concatenate(sides, axis=1)
