"""One small valid file of every kind that icofactor reads, and the call that reads it."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from helpers.hostile_fit import small_fit
from helpers.stores import cohort
from icofactor.assessment.atlas import Atlas, overlap, read_atlas, read_regions, write_overlap
from icofactor.assessment.bootstrap import Bootstrap
from icofactor.cohort.load import load_cohort
from icofactor.cohort.masks import read_mask
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import open_store
from icofactor.cohort.subjects import read_participants
from icofactor.estimator.saving import load_model
from icofactor.io.maps import read_maps
from icofactor.io.publish import LIST
from icofactor.preprocessing.hcp import read_series
from icofactor.preprocessing.resampling import Resampler
from icofactor.results.description import read_methods
from icofactor.results.diagnostics.record import load_diagnostics, save_diagnostics
from icofactor.results.folder import FitFolder
from icofactor.results.report.selection_files import read_choice, read_record, read_selection_files
from icofactor.results.report.surfaces import cortex_of
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import as_sphere, as_values

N = 642
_RNG_SEED = 7


@dataclass(frozen=True)
class Specimen:
    """A valid file.

    Attributes
    ----------
    kind : what it is, e.g. "MGZ".
    file : the file that is damaged.
    read : reads it, or what it is part of, to the last number.
    named : what a message must name; the file, or the folder it is part of.
    form : how to damage it from within: "raw", "gzip", "zip", "json", "xml" or "text".
    """

    kind: str
    file: Path
    read: Callable[[], Any]
    named: str
    form: str = "raw"


def make_specimens(folder: Path) -> list[Specimen]:
    """All of them, written into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        groups = (_maps, _tables, _labels, _surfaces, _stored, _fitted)
        return [specimen for make in groups for specimen in make(folder)]


def _values(n: int = 3) -> np.ndarray:
    return np.random.default_rng(_RNG_SEED).gamma(2, 1, (n, N)).astype(np.float32) + 1


def _maps(folder: Path) -> list[Specimen]:
    import nibabel as nib
    from scipy.io import savemat

    values = _values()
    files: list[tuple[str, str, str]] = []

    def keep(kind: str, name: str, form: str = "raw") -> Path:
        files.append((kind, name, form))
        return folder / name

    stack = nib.MGHImage(np.ascontiguousarray(values.T[:, None, None, :]), np.eye(4))
    nib.save(stack, keep("MGH", "lh.a.mgh"))
    nib.save(stack, keep("MGZ", "lh.b.mgz", "gzip"))
    nib.freesurfer.write_morph_data(keep("morph", "lh.thickness"), values[0])
    for kind, name, form, encoding in (
        ("GIFTI", "c.L.shape.gii", "xml", "GIFTI_ENCODING_B64GZ"),
        ("GIFTI ASCII", "d.L.shape.gii", "xml", "GIFTI_ENCODING_ASCII"),
        ("GIFTI base64", "e.L.shape.gii", "xml", "GIFTI_ENCODING_B64BIN"),
    ):
        arrays = [
            nib.gifti.GiftiDataArray(
                row,
                intent="NIFTI_INTENT_SHAPE",
                datatype="NIFTI_TYPE_FLOAT32",
                encoding=encoding,
                meta={"Name": f"s{i}"},
            )
            for i, row in enumerate(values)
        ]
        nib.save(nib.gifti.GiftiImage(darrays=arrays), keep(kind, name, form))
    keep("GIFTI gz", "f.L.shape.gii.gz", "gzip").write_bytes(
        gzip.compress((folder / "c.L.shape.gii").read_bytes())
    )
    brain = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(40, N), N, name="CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    for kind, name, axis in (
        ("CIFTI dscalar", "g.dscalar.nii", nib.cifti2.ScalarAxis(["a", "b", "c"])),
        ("CIFTI dtseries", "h.dtseries.nii", nib.cifti2.SeriesAxis(0, 0.72, 3)),
    ):
        nib.save(nib.Cifti2Image(values[:, 40:], (axis, brain)), keep(kind, name))
    own = [(f"r{i}", [], {brain.name[0]: np.arange(10 * i, 10 * i + 10)}) for i in range(4)]
    parcels = nib.cifti2.ParcelsAxis(*zip(*own, strict=True), nvertices={brain.name[0]: N})
    scalars = nib.cifti2.ScalarAxis(["a", "b", "c"])
    nib.save(
        nib.Cifti2Image(values[:, :4], (scalars, parcels)), keep("CIFTI pscalar", "q.pscalar.nii")
    )
    rows = "".join(
        f"{who}\t" + "\t".join(f"{x:.4f}" for x in row[:4]) + "\n"
        for who, row in zip("abc", values, strict=True)
    )
    keep("table of regions", "r.tsv", "text").write_text(f"id\tlh_a\tlh_b\trh_a\trh_b\n{rows}")
    np.save(keep("npy", "lh.i.npy"), values)
    np.savetxt(keep("text", "l.left.txt", "text"), values[0], fmt="%.5f")
    np.savetxt(keep("CSV", "m.csv", "text"), values, fmt="%.5f", delimiter=",")
    savemat(keep("MATLAB", "n.mat"), {"x": values})
    savemat(keep("MATLAB compressed", "o.mat"), {"x": values}, do_compression=True)
    nib.save(
        nib.Nifti1Image(values[0].reshape(N, 1, 1), np.eye(4)), keep("NIfTI", "lh.p.nii.gz", "gzip")
    )
    names = np.array(["a", "b", "c"])
    np.savez(
        keep("npz", "j.npz", "zip"),
        x=values,
        subjects=names,
        age=np.arange(3.0),
        mask=values[0] > 1.2,
    )
    np.savez_compressed(keep("npz compressed", "k.npz", "zip"), x=values, subjects=names)
    made = [
        Specimen(kind, folder / name, _reading_cohort(folder / name), name, form)
        for kind, name, form in files
    ]
    return [
        *made,
        Specimen(
            "map as values",
            folder / "lh.a.mgh",
            lambda: _touch(read_maps(folder / "lh.a.mgh")),
            "lh.a",
        ),
    ]


def _reading_cohort(file: Path) -> Callable[[], Any]:
    def read() -> None:
        given: dict[str, Any] = (
            {} if file.name.endswith((".nii", ".tsv")) else {"hemisphere": "left"}
        )
        given |= (
            {} if file.suffix == ".tsv" else {"mesh": "fsaverage3"}
        )  # tables of regions are on no mesh
        found = load_cohort(file, subjects=None, **given)
        np.asarray(found.X).sum()

    return read


def _touch(maps: Any) -> None:
    for part in maps.parts.values():
        with np.errstate(all="ignore"):
            np.asarray(part, dtype=np.float64).sum()


def _tables(folder: Path) -> list[Specimen]:
    file = folder / "participants.tsv"
    rows = [f"sub-{i:02d}\t{20 + i}\t{'MF'[i % 2]}\tsite{i % 3}\t0" for i in range(20)]
    file.write_text("\n".join(["participant_id\tage\tsex\tsite\texclude", *rows]) + "\n")
    return [Specimen("participants.tsv", file, lambda: read_participants(file), file.name, "text")]


def _labels(folder: Path) -> list[Specimen]:
    import nibabel as nib

    sites = Sites.named("fsaverage3")
    keys = 1 + (sites.coordinates[:, 2] < 0).astype(np.int32)
    keys[:40] = 0
    names = ["unknown", "north", "south"]
    colours = np.array([[25, 5, 25, 0, 0], [25, 100, 40, 0, 0], [125, 100, 160, 0, 0]])
    annot, label, gifti = (
        folder / "lh.x.annot",
        folder / "lh.cortex.label",
        folder / "L.x.label.gii",
    )
    nib.freesurfer.write_annot(annot, keys, colours, names, fill_ctab=True)
    body = "".join(
        f"{i}  {x:.3f}  {y:.3f}  {z:.3f} 0.0\n"
        for i, (x, y, z) in enumerate(sites.coordinates)
        if keys[i]
    )
    label.write_text(f"#!ascii label\n{(keys > 0).sum()}\n{body}")
    table = nib.gifti.GiftiLabelTable()
    for key, name in enumerate(names):
        one = nib.gifti.GiftiLabel(key, 0.5, 0.5, 0.5, 1.0)
        one.label = name
        table.labels.append(one)
    array = nib.gifti.GiftiDataArray(keys, intent="NIFTI_INTENT_LABEL", datatype="NIFTI_TYPE_INT32")
    nib.save(nib.gifti.GiftiImage(darrays=[array], labeltable=table), gifti)
    dlabel = folder / "x.dlabel.nii"
    brain = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(40, N), N, name="CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    axis = nib.cifti2.LabelAxis(["x"], [{i: (name, (1, 0, 0, 1)) for i, name in enumerate(names)}])
    nib.save(nib.Cifti2Image(keys[None, 40:].astype(np.float32), (axis, brain)), dlabel)
    widths = {"left": N}
    masks = [(annot, "raw"), (label, "text"), (gifti, "xml")]
    atlases = [(annot, "raw"), (gifti, "xml"), (dlabel, "raw")]
    found = [
        Specimen(
            f"mask {file.name}", file, lambda file=file: read_mask(file, widths), file.name, form
        )
        for file, form in masks
    ]
    found += [
        Specimen(
            f"atlas {file.name}",
            file,
            lambda file=file: read_atlas(file, sites, "left"),
            file.name,
            form,
        )
        for file, form in atlases
    ]
    found += [
        Specimen(
            f"page atlas {f.name}", f, lambda f=f: read_regions([f], sites, "left"), f.name, form
        )
        for f, form in atlases
    ]
    return found


def _surfaces(folder: Path) -> list[Specimen]:
    import nibabel as nib

    sites = Sites.named("fsaverage3")
    points, faces = (
        sites.coordinates.astype(np.float32),
        np.asarray(sites.triangles, dtype=np.int32),
    )
    gifti, own, areas = (
        folder / "L.sphere.surf.gii",
        folder / "lh.sphere",
        folder / "L.areas.shape.gii",
    )
    arrays = [
        nib.gifti.GiftiDataArray(
            points, intent="NIFTI_INTENT_POINTSET", datatype="NIFTI_TYPE_FLOAT32"
        ),
        nib.gifti.GiftiDataArray(
            faces, intent="NIFTI_INTENT_TRIANGLE", datatype="NIFTI_TYPE_INT32"
        ),
    ]
    nib.save(nib.gifti.GiftiImage(darrays=arrays), gifti)
    nib.freesurfer.write_geometry(own, 100 * points, faces)
    shape = nib.gifti.GiftiDataArray(
        points[:, 0] + 2, intent="NIFTI_INTENT_SHAPE", datatype="NIFTI_TYPE_FLOAT32"
    )
    nib.save(nib.gifti.GiftiImage(darrays=[shape]), areas)
    weights = folder / "weights.npz"
    Resampler((points, faces), (points, faces), method="barycentric").save(weights)
    surface = as_sphere(str(gifti), "sphere")
    pial, series = folder / "lh.pial.surf.gii", folder / "rest.dtseries.nii"
    pial.write_bytes(gifti.read_bytes())
    brain = nib.cifti2.BrainModelAxis.from_surface(
        np.arange(100), 32_492, name="CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    nib.save(
        nib.Cifti2Image(_values(4)[:, :100], (nib.cifti2.SeriesAxis(0, 0.72, 4), brain)), series
    )
    civet = folder / "civet_mid_surface_left.obj"
    rows = "\n".join(" ".join(map(str, row)) for row in (*points, *points))
    ends, corners = (
        " ".join(map(str, some)) for some in (3 * np.arange(1, len(faces) + 1), faces.ravel())
    )
    civet.write_text(
        f"P 0.3 0.3 0.4 10 1 {len(points)}\n{rows}\n{len(faces)}\n0 1 1 1 1\n{ends}\n{corners}\n"
    )
    return [
        Specimen("surface of CIVET", civet, lambda: Sites.from_file(civet), civet.name, "text"),
        Specimen(
            "surface to draw on", pial, lambda: cortex_of(sites, "left", [pial]), pial.name, "xml"
        ),
        Specimen("HCP series", series, lambda: read_series(series, "left"), series.name),
        Specimen("sphere GIFTI", gifti, lambda: Sites.from_file(gifti), gifti.name, "xml"),
        Specimen("sphere FreeSurfer", own, lambda: Sites.from_file(own), own.name),
        Specimen("registered sphere", own, lambda: as_sphere(str(own), "source_sphere"), own.name),
        Specimen("areas", areas, lambda: as_values(areas, surface, "areas"), areas.name, "xml"),
        Specimen(
            "resampling weights", weights, lambda: Resampler.load(weights), weights.name, "zip"
        ),
    ]


def _stored(folder: Path) -> list[Specimen]:
    place = folder / "cohort.store"
    save_store(cohort(), place)
    content = place / "cohort-000001"

    def read() -> None:
        stored = open_store(place)
        np.asarray(stored.X).sum()
        dict(stored.participants)

    files = {
        "store record": (place / "zarr.json", "json"),
        "store maps": (content / "maps/c/0/0", "raw"),
        "store sites": (content / "sites/deepest/c/0", "raw"),
        "store frames": (content / "sites/frames/c/0/0/0", "raw"),
    }
    return [Specimen(kind, file, read, place.name, form) for kind, (file, form) in files.items()]


def _fitted(folder: Path) -> list[Specimen]:
    place = folder / "fitted"
    sites = Sites.named("fsaverage3")
    model, d = small_fit(sites, "left", mask=np.arange(sites.n) % 7 > 0)
    place.mkdir()
    model.save(place / "model.zip")
    save_diagnostics(d, place / "diagnostics.npz")
    selection = {
        "table": {"rank": [2, 3], "error": [0.5, None]},
        "recommended": 3,
        "reasons": ["a"],
        "settings": {},
    }
    (place / "selection.json").write_text(json.dumps(selection))
    (place / "provenance.json").write_text(
        json.dumps({"inputs": [{"path": "a", "bytes": 1}], "versions": {"x": "1"}})
    )
    (place / "methods.md").write_text("Maps were factorized.\n")
    trust = folder / "trust"
    trust.mkdir()
    spread = Bootstrap(
        np.abs(model.components_) / 9, np.abs(model.loadings_) / 9, np.full((4, 3), 0.9)
    )
    spread.save(trust, model, d.subjects)
    regions = Atlas(np.arange(sites.n) % 3 - 1, ("a", "b"))
    write_overlap(overlap(model, regions, n_spins=3), trust / "atlas_overlap.tsv")
    coarse, _ = small_fit(sites, "left", k=2, columns="smooth", method="LE-PNNMF")
    coarse.save(place / "coarse.zip")
    read = {
        "model.zip": lambda: repr(load_model(place / "model.zip").sites_),
        "coarse.zip": lambda: load_model(place / "coarse.zip"),
        "diagnostics.npz": lambda: load_diagnostics(place / "diagnostics.npz"),
        "selection.json": lambda: read_choice(place),
        "provenance.json": lambda: read_record(place / "provenance.json"),
        "methods.md": lambda: read_methods(place / "methods.md"),
    }
    form = {".zip": "zip", ".npz": "zip", ".json": "json", ".md": "text"}
    found = [
        Specimen(name, place / name, call, name, form[Path(name).suffix])
        for name, call in read.items()
    ]
    beside = lambda: read_selection_files(trust, model, d.subjects)
    for name in ("stability.tsv", "loadings_se.tsv", "atlas_overlap.tsv"):
        found.append(Specimen(name, trust / name, beside, name, "text"))
    maps = "hemi-L_space-fsaverage_den-642_desc-icofactor_componentsse.shape.gii"
    found.append(Specimen(maps, trust / maps, beside, maps, "xml"))
    return [*found, _earlier_fit(folder)]


def _earlier_fit(folder: Path) -> Specimen:
    """A folder that is written over: its list says which files are the earlier fit's."""
    out = folder / "again"

    def write() -> None:
        with FitFolder(out, overwrite=True).filled() as new:
            (new / "provenance.json").write_text("{}")

    write()
    file = out / LIST
    return Specimen(
        "earlier fit", file, write, out.name, "json"
    )  # it lists the other files with their checksums
