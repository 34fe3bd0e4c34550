"""One small valid file of every kind that icofactor reads, and the call that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from helpers.hostile_fit import small_fit
from helpers.map_files import CORTEX, FORMATS, NAMES, X
from helpers.stores import cohort
from helpers.trees import write_cifti, write_morph, write_surface
from icofactor.cohort.masks import read_mask
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import open_store
from icofactor.estimator.saving import load_model
from icofactor.io.freesurfer import write_annot
from icofactor.io.gifti import write_label_gii
from icofactor.io.guard import naming
from icofactor.io.json import read_json
from icofactor.io.maps import read_labels, read_maps
from icofactor.io.tables import read_table
from icofactor.preprocessing.resampling import Resampler
from icofactor.results.diagnostics.record import load_diagnostics, save_diagnostics
from icofactor.sphere.sites import Sites

N = 642
N_CORTEX = int(CORTEX["left"].sum())


@dataclass(frozen=True)
class Specimen:
    """A valid file, and what reads it, or what it is part of, to the last number."""

    file: Path
    read: Callable[[], object]


def _touch(path: Path) -> None:
    with np.errstate(all="ignore"):
        for part in read_maps(path).parts.values():
            np.asarray(part, dtype=np.float64).sum()


def _named(read: Callable[[Path], Any]) -> Callable[[Path], None]:
    """A reader that leaves the file's name to its caller."""

    def named(path: Path) -> None:
        with naming(path):
            read(path)

    return named


def _pscalar(path: Path) -> None:
    structure = "CIFTI_STRUCTURE_CORTEX_LEFT"
    rows = [(f"r{i}", [], {structure: np.arange(10 * i, 10 * i + 10)}) for i in range(4)]
    parcels = nib.cifti2.ParcelsAxis(*zip(*rows, strict=True), nvertices={structure: N})
    image = nib.Cifti2Image(X[:, :4], (nib.cifti2.ScalarAxis(NAMES), parcels))
    nib.save(image, path)


def _dlabel(path: Path) -> None:
    brain = nib.cifti2.BrainModelAxis.from_mask(CORTEX["left"], "CIFTI_STRUCTURE_CORTEX_LEFT")
    table = {key: (name, (1, 0, 0, 1)) for key, name in enumerate(NAMES)}
    keys = np.arange(N_CORTEX, dtype=np.float32)[None] % 3
    nib.save(nib.Cifti2Image(keys, (nib.cifti2.LabelAxis(["x"], [table]), brain)), path)


def _geometry(path: Path) -> None:
    sites = Sites.named("fsaverage3")
    nib.freesurfer.write_geometry(path, sites.coordinates, np.asarray(sites.triangles, np.int32))


def _obj(path: Path) -> None:
    sites = Sites.named("fsaverage3")
    faces = np.asarray(sites.triangles)
    points = "\n".join(" ".join(map(str, row)) for row in (*sites.coordinates, *sites.coordinates))
    ends = " ".join(map(str, 3 * np.arange(1, len(faces) + 1)))
    corners = " ".join(map(str, faces.ravel()))
    head = f"P 0.3 0.3 0.4 10 1 {N}\n{points}\n{len(faces)}\n0 1 1 1 1\n"
    path.write_text(f"{head}{ends}\n{corners}\n")


def _surface(path: Path) -> None:
    sites = Sites.named("fsaverage3")
    write_surface(path, sites.coordinates, sites.triangles)


def _label(path: Path) -> None:
    body = "".join(f"{i} 0.1 0.2 0.3 0.0\n" for i in range(40, N))
    path.write_text(f"#!ascii label\n{N - 40}\n{body}")


def _table(path: Path) -> None:
    rows = [f"sub-{i:02d}\t{20 + i}\t{'MF'[i % 2]}\tsite{i % 3}" for i in range(20)]
    path.write_text("\n".join(["participant_id\tage\tsex\tsite", *rows]) + "\n")


def _model(path: Path) -> None:
    small_fit(Sites.named("fsaverage3"), "left")[0].save(path)


def _diagnostics(path: Path) -> None:
    save_diagnostics(small_fit(Sites.named("fsaverage3"), "left")[1], path)


def _weights(path: Path) -> None:
    sites = Sites.named("fsaverage3")
    sphere = (sites.coordinates, np.asarray(sites.triangles))
    Resampler(sphere, sphere, method="barycentric").save(path)


LABELS: dict[str, Any] = {
    "labels": np.arange(N) % 3,
    "names": NAMES[:2],
    "colours": [[200, 0, 0], [0, 0, 200]],
}
# Name of the file → what writes it, and what reads it.
KINDS: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    **{name: (write, _touch) for name, write in FORMATS.items()},
    "lh.thickness": (lambda path: write_morph(path, X[0]), _touch),
    "h.dtseries.nii": (lambda path: write_cifti(path, {"left": X}, step=0.72), _touch),
    "q.pscalar.nii": (_pscalar, _touch),
    "x.dlabel.nii": (_dlabel, _named(read_labels)),
    "l.left.txt": (lambda path: np.savetxt(path, X[0], fmt="%.5f"), _touch),
    "lh.x.annot": (lambda path: write_annot(path, **LABELS), _named(read_labels)),
    "x.label.gii": (lambda path: write_label_gii(path, hemi="left", **LABELS), _named(read_labels)),
    "lh.cortex.label": (_label, lambda path: read_mask(path, {"left": N})),
    "L.sphere.surf.gii": (_surface, Sites.from_file),
    "lh.sphere": (_geometry, Sites.from_file),
    "civet_mid_surface_left.obj": (_obj, Sites.from_file),
    "participants.tsv": (_table, _named(read_table)),
    "record.json": (
        lambda path: path.write_text(json.dumps({"inputs": [{"a": 1, "b": 0.5}] * 20})),
        _named(read_json),
    ),
    "model.zip": (_model, load_model),
    "diagnostics.npz": (_diagnostics, load_diagnostics),
    "weights.npz": (_weights, Resampler.load),
}
STORE = (
    "zarr.json",
    "cohort-*/maps/c/0/0",
    "cohort-*/sites/order/c/0",
    "cohort-*/sites/frames/c/0/0/0",
)


def make_specimen(kind: str, folder: Path) -> Specimen:
    """Write the file of a kind into a folder."""
    if kind in STORE:
        save_store(cohort(), folder / "store")
        return Specimen(next((folder / "store").glob(kind)), lambda: _read_store(folder / "store"))
    write, read = KINDS[kind]
    write(folder / kind)
    return Specimen(folder / kind, lambda: read(folder / kind))


def _read_store(folder: Path) -> None:
    stored = open_store(folder)
    np.asarray(stored.X).sum()
    dict(stored.participants)
