"""A small fit in a folder, as `icofactor fit` leaves one; its maps say where they are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted, small_fit
from icofactor.assessment.atlas import Atlas, overlap, write_overlap
from icofactor.assessment.bootstrap import Bootstrap
from icofactor.io.tables import write_tsv
from icofactor.results.associations import write_associations
from icofactor.results.diagnostics.record import save_diagnostics
from icofactor.sphere.sites import Sites

PROVENANCE = {
    "data": {"inputs": [{"path": "/private/a.npy"}]},
    "inputs": {"/private/a.npy": "0"},
    "model": {"mask": "/private/lh.mask", "n_components": 3},
    "warnings": [IMAGE],
}


@pytest.fixture(scope="session")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """Both hemispheres of fsaverage4, medial wall masked; component 1 is the front of the left hemisphere only."""
    sites = Sites.named("fsaverage4", hemi="both")
    inward = sites.coordinates[:, 0] * np.where(sites.hemisphere == 0, 1, -1)
    model, diagnostics = small_fit(sites, "both", mask=inward < 0.85)
    front = np.clip(sites.coordinates[:, 1], 0, None) * (sites.hemisphere == 0)
    back = np.clip(-sites.coordinates[:, 1], 0, None) * (sites.hemisphere == 1)
    model.components_ = (
        np.stack([front, 2 * back, 0.5 + 0.1 * sites.coordinates[:, 2]]) * model.mask_
    )
    spread = len(model.loadings_) * model.loadings_.var(axis=0)
    model.explained_variance_ = (model.components_**2).sum(axis=1) * spread
    model.explained_variance_ratio_ = (
        model.explained_variance_ / model.total_variance_
    )  # a model is refused without
    folder = tmp_path_factory.mktemp("fitted")
    model.save(folder / "model.zip")
    save_diagnostics(diagnostics, folder / "diagnostics.npz")
    (folder / "methods.md").write_text(f"Cortical maps were factorized. {CLOSING}")
    (folder / "provenance.json").write_text(json.dumps(PROVENANCE))
    selection = {
        "table": {"n_components": [2, 3], "score": [0.1, float("0.2")], IMAGE: [1.0, None]},
        "recommended": 3,
        "reasons": [SCRIPT],
    }
    (folder / "selection.json").write_text(json.dumps(selection))
    spread = Bootstrap(
        model.components_ / 9, np.abs(model.loadings_) / 9, np.linspace(0.5, 0.95, 12).reshape(4, 3)
    )
    spread.save(folder, model, diagnostics.subjects)
    regions = Atlas(
        (sites.coordinates[:, 1] > 0) + 2 * sites.hemisphere,
        tuple(f"{s} {r}" for s in SIDES for r in REGIONS),
    )
    write_overlap(overlap(model, regions, n_spins=20), folder / "atlas_overlap.tsv")
    write_dlabel(folder / "atlas.dlabel.nii", regions.labels.reshape(2, -1) % 2 + 1)
    return Fitted(folder, model, diagnostics)


@pytest.fixture(scope="session")
def associated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit with associations, latent variables and W-scores; a column, its levels and a measure try to be markup."""
    cohort = ico.simulate_cohort(30, 2, mesh="fsaverage3", random_state=0)
    place = tmp_path_factory.mktemp("associated") / "fit"
    ico.fit_cohort(cohort, ico.CorticalFactorization(2, n_starts=2, level=1), place, figures=False)
    levels = [(SCRIPT, CLOSING, "$x^$")[i % 3] for i in range(30)]
    names, age = list(cohort.subjects), np.asarray(cohort.participants["age"])
    people = {
        "participant_id": names,
        "age": age,
        IMAGE: levels,
        "group": ["patient", *["control"] * 5] * 5,
    }
    write_tsv(place.parent / "people.tsv", people)
    write_tsv(
        place.parent / "behaviour.tsv",
        {"participant_id": names, IMAGE: age % 7, "$x^$": np.sqrt(age)},
    )
    write_associations(
        place,
        None,
        f"age + `{IMAGE}`",
        contrast=["age: 60 - 30"],
        participants=place.parent / "people.tsv",
        behaviour=place.parent / "behaviour.tsv",
        reference="group=control",
        n_permutations=99,
        n_bootstrap=20,
    )
    return place


SIDES, REGIONS = ("left", "right"), ("back", IMAGE)


def write_dlabel(path: Path, labels: np.ndarray) -> None:
    """A CIFTI atlas that leaves the first ten vertices of each hemisphere out, as the HCP's leave the medial wall."""
    import nibabel as nib

    used = np.arange(labels.shape[1]) >= 10
    left, right = (nib.cifti2.BrainModelAxis.from_mask(used, f"cortex_{side}") for side in SIDES)
    table = {
        0: ("???", (0.0, 0.0, 0.0, 0.0)),
        **{i: (name, (0.1, 0.2, 0.3, 1.0)) for i, name in enumerate(REGIONS, 1)},
    }
    header = nib.cifti2.Cifti2Header.from_axes(
        (nib.cifti2.LabelAxis(["atlas"], [table]), left + right)
    )
    data = labels[:, used].reshape(1, -1).astype(np.float32)
    nib.save(nib.Cifti2Image(data, header), path)
