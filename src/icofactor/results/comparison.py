"""The comparison of two fits as files:

    comparison.tsv                    one row per pair of components
    comparison.json                   meaning of the columns, settings, both models
    comparison.png, comparison.pdf    the pairs side by side (if the mesh can be drawn)

They lie in a folder of their own, or beside a fit, and are removed with the fit when it is
overwritten.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icofactor import __version__
from icofactor.assessment._compare import Comparison, compare
from icofactor.estimator.saving import model_at
from icofactor.io.guard import hash_file
from icofactor.io.publish import Publication
from icofactor.io.tables import write_table
from icofactor.results.report.drawing import figure_bytes
from icofactor.results.report.figures import plot_pairs
from icofactor.results.report.surfaces import cortex_or_reason

TABLE = "comparison.tsv"
RECORD = "comparison.json"
PICTURES = ("comparison.png", "comparison.pdf")
# Pairs in the picture; all are in the table.
_MAX_PAIRS = 20
_COLUMNS = {
    "component_a": "Component of the first fit",
    "component_b": "Its match in the second fit; the sum of similarities is largest",
    "similarity": "Correlation of the two maps over the sites that both fits use",
    "null_mean": (
        "Mean similarity of this component's match when the second fit's maps are rotated at random"
    ),
    "null_95": "95th percentile of that similarity",
    "p": "Share of the rotations in which this component's match is at least as similar",
    "p_corrected": "The same against the most similar pair of each rotation",
}


def write_comparison(
    a: str | Path,
    b: str | Path,
    out: str | Path,
    *,
    spheres: str | Path | None = None,
    n_spins: int = 1000,
    random_state: int = 0,
    overwrite: bool = False,
    report: Callable[[float], None] | None = None,
) -> tuple[Comparison, list[Path]]:
    """Compare two fits and write the files at the top of this module, all or none.

    See Also
    --------
    icofactor.compare : the comparison alone.
    """
    # Both may be folders, or the models themselves.
    models = [model_at(path) for path in (a, b)]
    folder = Publication(out, overwrite, names=[TABLE, RECORD, *PICTURES], inputs=models)
    comparison = compare(
        *models, spheres=spheres, n_spins=n_spins, random_state=random_state, report=report
    )
    origins = [{"path": str(model), "sha256": hash_file(model)} for model in models]
    # Results that have no row in the table.
    record = {
        "icofactor": __version__,
        "a": origins[0],
        "b": origins[1],
        "n_spins": n_spins,
        "random_state": random_state,
        "mean_similarity": comparison.mean,
        "null_mean_similarity": comparison.null_mean,
        "p_mean_similarity": comparison.p,
        "sites_compared": int(comparison.mask.sum()),
        "maps": comparison.how,
        "similarity_matrix": comparison.similarity,
    }
    with folder.filled() as stage:
        write_table(stage / TABLE, comparison.table, _COLUMNS, record)
        figure = draw_pairs(comparison, (str(a), str(b)))
        if figure is not None:
            for name in PICTURES:
                (stage / name).write_bytes(figure_bytes(figure, name.rpartition(".")[2]))
    return comparison, folder.files


def draw_pairs(comparison: Comparison, names: tuple[str, str] = ("a", "b")) -> Any:
    """Draw pairs side by side, the most similar first; None if the mesh cannot be drawn."""
    model = comparison.model_a
    table = comparison.table
    cortex = cortex_or_reason(model.sites_, model.hemi_)
    if not cortex.hemispheres:
        return None
    maps_a = np.where(comparison.mask, model.components_, np.nan)
    maps_b = np.where(comparison.mask, comparison.maps_b, np.nan)
    pairs = []
    labels = []
    for row in np.argsort(-table["similarity"], kind="stable")[:_MAX_PAIRS]:
        # Components are numbered from 1.
        component_a = table["component_a"][row]
        component_b = table["component_b"][row]
        pairs.append((maps_a[component_a - 1], maps_b[component_b - 1]))
        labels.append(
            f"{component_a} and {component_b}\n"
            f"r = {table['similarity'][row]:.2f}\n"
            f"rotated {table['null_mean'][row]:.2f}\n"
            f"p = {table['p'][row]:.2g}"
        )
    return plot_pairs(model, pairs, labels, names, cortex)
