"""The comparison of two fits as files:

    comparison.tsv, comparison.json    one row per pair of components; what the columns hold,
    settings, both models comparison.png, comparison.pdf     the pairs side by side (where the mesh
    can be drawn)

They lie in a folder of their own, or beside a fit, and leave with the fit when it is overwritten.
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

TABLE, RECORD, PICTURES = "comparison.tsv", "comparison.json", ("comparison.png", "comparison.pdf")
_MOST_PAIRS = 20
_COLUMNS = {
    "component_a": "Component of the first fit",
    "component_b": "Its match in the second fit; the sum of similarities is largest",
    "similarity": "Correlation of the two maps over the sites that both fits use",
    "null_mean": "Mean similarity of this component's match when the second fit's maps are rotated at random",
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
    """Compare two fits and write the files at the top of this module; all or none. See
    `icofactor.compare`.
    """
    files = [model_at(path) for path in (a, b)]
    place = Publication(out, overwrite, names=[TABLE, RECORD, *PICTURES], inputs=files)
    found = compare(
        *files, spheres=spheres, n_spins=n_spins, random_state=random_state, report=report
    )
    models = {
        name: {"path": str(file), "sha256": hash_file(file)}
        for name, file in zip(("a", "b"), files, strict=True)
    }
    settings = {
        "icofactor": __version__,
        **models,
        "n_spins": n_spins,
        "random_state": random_state,
    }
    whole = {
        "mean_similarity": found.mean,
        "null_mean_similarity": found.null_mean,
        "p_mean_similarity": found.p,
    }
    more = {
        "sites_compared": int(found.mask.sum()),
        "maps": found.how,
        "similarity_matrix": found.similarity,
    }
    with place.filled() as new:
        write_table(new / TABLE, found.table, _COLUMNS, {**settings, **whole, **more})
        figure = draw_pairs(found, (str(a), str(b)))
        for name in PICTURES if figure is not None else ():
            (new / name).write_bytes(figure_bytes(figure, name.rpartition(".")[2]))
    return found, place.files


def draw_pairs(found: Comparison, names: tuple[str, str] = ("a", "b")) -> Any:
    """The pairs side by side, the most similar first; None where the mesh cannot be drawn."""
    model, table = found.model_a, found.table
    cortex = cortex_or_reason(model.sites_, model.hemi_)
    if not cortex.hemispheres:
        return None
    order = np.argsort(-table["similarity"], kind="stable")[:_MOST_PAIRS]
    shown = lambda maps, j: np.where(found.mask, maps[j - 1], np.nan)
    pairs = [
        (
            shown(model.components_, table["component_a"][i]),
            shown(found.maps_b, table["component_b"][i]),
        )
        for i in order
    ]
    labels = [
        f"{table['component_a'][i]} and {table['component_b'][i]}\nr = {table['similarity'][i]:.2f}\n"
        f"rotated {table['null_mean'][i]:.2f}\np = {table['p'][i]:.2g}"
        for i in order
    ]
    return plot_pairs(model, pairs, labels, names, cortex)
