"""A small fit in a folder, as `icofactor fit` leaves one; its maps say where they are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted, small_fit
from icofactor.diagnostics import save_diagnostics
from icofactor.sphere import Sites


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Both hemispheres of fsaverage4, medial wall masked; component 1 is the front of the left hemisphere only."""
    sites = Sites.named("fsaverage4", hemi="both")
    inward = sites.coordinates[:, 0] * np.where(sites.hemisphere == 0, 1, -1)
    model, diagnostics = small_fit(sites, "both", mask=inward < 0.85)
    front = np.clip(sites.coordinates[:, 1], 0, None) * (sites.hemisphere == 0)
    back = np.clip(-sites.coordinates[:, 1], 0, None) * (sites.hemisphere == 1)
    model.components_ = np.stack([front, 2 * back, 0.5 + 0.1 * sites.coordinates[:, 2]]) * model.mask_
    folder = tmp_path_factory.mktemp("fitted")
    model.save(folder / "model.zip")
    save_diagnostics(diagnostics, folder / "diagnostics.npz")
    (folder / "methods.md").write_text(f"Cortical maps were factorized. {CLOSING}")
    (folder / "provenance.json").write_text(json.dumps({"data": {"files": [IMAGE]}}))
    selection = {
        "table": {"n_components": [2, 3], "score": [0.1, float("0.2")], IMAGE: [1.0, None]},
        "recommended": 3,
        "reasons": [SCRIPT],
    }
    (folder / "selection.json").write_text(json.dumps(selection))
    return Fitted(folder, model, diagnostics)
