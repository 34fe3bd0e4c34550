"""A fit as a folder, whole or not at all.

`write_fit` fills a folder as a BIDS derivative of a group. STEM is space-fsaverage_den-10k.

    dataset_description.json                        DatasetType "derivative", GeneratedBy icofactor
    hemi-L_STEM_desc-icofactor_components.shape.gii one map per component, for each hemisphere
    hemi-L_STEM_desc-icofactor_mask.shape.gii       1 where a vertex was used (with a mask)
    hemi-L_STEM_desc-icofactor_dseg.label.gii       winner-takes-all parcellation
    hemi-L_STEM_desc-icofactor_dseg.annot           the same for FreeSurfer
    hemi-L_space-civet_den-41k_desc-icofactor_midthickness.surf.gii
                                                    mean of the subjects' surfaces
    space-fsLR_den-32k_desc-icofactor_components.dscalar.nii, ..._components.pscalar.nii,
    ..._dseg.dlabel.nii                             both hemispheres (on fs_LR 32k only)
    desc-icofactor_dseg.tsv                         index, name and colour of each parcel
    desc-icofactor_regions.tsv                      components in every region (parcels only)
    desc-icofactor_components.tsv                   variance, extent and recurrence of components
    desc-icofactor_loadings.tsv                     participant_id, session_id, component01, ...
    desc-icofactor_participants.tsv                 the participants table, if there is one
    desc-icofactor_dseg.json, ...                   meaning of the columns of each table
    ..._desc-thickness_components.shape.gii, ...    maps of one of several measures, in its units
    provenance.json, methods.md                     configuration, inputs, versions; a paragraph for
                                                    the paper
    model.zip, diagnostics.npz                      read by `load_model` and the report
    components.png, report.html                     all components; the page
    figures/                                        charts of the page, as SVG
    tables/                                         numbers of the page

`icofactor.io.publish` makes the files appear together and lists them with those that `select`,
`report` and others add, so that overwriting replaces all of them and nothing else. No table has the
name of one that a BIDS dataset has.

Components are numbered. Once `icofactor select --atlas` knows where they lie, `name_components`
gives names to those that an atlas names (q ≤ 0.05), in label tables and descriptions of columns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.assessment.atlas import Overlap, with_names, write_overlap
from icofactor.errors import ArgumentError, ExistsError
from icofactor.estimator.saving import MODEL, model_at
from icofactor.io.cifti import write_dlabel, write_dscalar, write_pscalar
from icofactor.io.freesurfer import write_annot
from icofactor.io.gifti import write_label_gii, write_maps, write_surface
from icofactor.io.guard import hash_file
from icofactor.io.json import read_json
from icofactor.io.publish import Names, Publication, list_of
from icofactor.io.tables import GIVEN, numbered, sidecar, write_json, write_table
from icofactor.progress import Stages
from icofactor.results.colours import distinct_colours
from icofactor.results.description import (
    DIAGNOSTICS,
    LOADINGS,
    METHODS,
    PROVENANCE,
    SURFACE,
    FitDescription,
)
from icofactor.results.diagnostics import load_diagnostics, save_diagnostics
from icofactor.results.meaning import meaning_of
from icofactor.results.report.page import COMPONENTS, PAGE, draw_components, write_report
from icofactor.results.report.selection_files import CURVES, OVERLAP, SelectionFiles
from icofactor.results.report.surfaces import Cortex
from icofactor.results.report.tables import tables_beside
from icofactor.sphere.names import (
    OWN,
    hemispheres,
    is_fs_lr,
    map_file,
    table_file,
    vertices_per_side,
)

_BIDS_VERSION = "1.10.0"
_DESCRIPTION = "dataset_description.json"
PARTICIPANTS = table_file("participants.tsv")
_PARCELS = table_file("dseg.tsv")
_COMPONENT_TABLE = table_file("components.tsv")
_REGIONS = table_file("regions.tsv")
_TABLES = (LOADINGS, _COMPONENT_TABLE, PARTICIPANTS, _PARCELS, _REGIONS)
# Endings of maps, after hemisphere, mesh and measure.
_MAPS = "components.shape.gii"
_MASK = "mask.shape.gii"
_LABELS = "dseg.label.gii"
_ANNOT = "dseg.annot"
_DSCALAR = "components.dscalar.nii"
_PSCALAR = "components.pscalar.nii"
_DLABEL = "dseg.dlabel.nii"
# Maps that hold names of components.
_NAMED_MAPS = (_MAPS, _LABELS, _ANNOT, _DSCALAR, _PSCALAR, _DLABEL)
# Files whose names do not depend on the maps, which are checked before the fit.
_FILES = (
    *_TABLES,
    *(sidecar(table).name for table in _TABLES),
    _DESCRIPTION,
    COMPONENTS,
    PROVENANCE,
    METHODS,
    MODEL,
    DIAGNOSTICS,
    PAGE,
)
_PARCEL_COLUMNS = {
    "index": "Key of the parcel in the label files: the component that contributes most there",
    "name": "Component, with the atlas regions in which it is enriched and its share there",
    "color": "Colour in label files, page and figures",
    "n_vertices": "Vertices of the parcel",
    "n_regions": "Regions of the parcel",
}
_REGION_COLUMNS: dict[str, Any] = {
    "region": "Region of the atlas",
    "n_vertices": "Vertices of the region",
    "parcel": "Component that contributes most there",
    "median": "Median over people",
}
_COMPONENT_COLUMNS = {
    "component": "Component; column of the loadings",
    "name": "Atlas regions in which it is enriched (q <= 0.05), with its share there",
    "variance_alone": (
        "Share of the between-subject variance that its map times its loadings carries"
    ),
    "variance_unique": "Share that its loadings add to those of all others, by linear regression",
    "extent": "Share of the sites where the map exceeds 5 % of its largest value",
    "recurrence": (
        "Share of the other random starts on the same people that fit as well and reach it; n/a if "
        "unknown"
    ),
    "l1_B": "Sum of absolute values of B, in the coordinates of the fit",
    "l1_C": "Sum of absolute values of C, in the coordinates of the fit",
}


class FitFolder(Publication):
    """The folder of a fit: missing, empty, or written by icofactor; checked before any work.

    Parameters
    ----------
    path : made when missing.
    overwrite : whether to replace an earlier fit, with everything that icofactor has written about
        it.
    figures : whether figures/ will be written.
    inputs : files and folders that are read for the fit; see `Publication`.
    """

    def __init__(
        self,
        path: str | Path,
        overwrite: bool = False,
        figures: bool = True,
        inputs: Iterable[str | Path] = (),
    ) -> None:
        self.figures = figures
        super().__init__(
            path, overwrite, names=sorted(_FILES), leaving=_of_earlier_fit, inputs=inputs
        )
        # Hidden files, such as those of a desktop or of version control, do not count.
        is_listed = bool(self.owned()) or not self.path.is_dir()
        if not is_listed and any(not name.startswith(".") for name in os.listdir(self.path)):
            raise ExistsError(
                self.path,
                "is not empty, and icofactor did not write it: choose another folder for the "
                "results",
            )

    @property
    def replaces(self) -> bool:
        """Whether there is an earlier fit."""
        return _DESCRIPTION in self.owned()

    @contextmanager
    def filled(self) -> Iterator[Path]:
        """Yield a private folder to fill; its files appear together when the block ends."""
        with super().filled() as stage:
            yield stage
            write_dataset_description(stage, "Factorization of cortical maps")


def _of_earlier_fit(listed: Names) -> Iterable[str]:
    """Return what leaves with an earlier fit: everything that was written about it."""
    # Without a fit, a selection of the number of components stays.
    return listed if _DESCRIPTION in listed else ()


def write_fit(fit: FitDescription, folder: FitFolder, stages: Stages | None = None) -> list[Path]:
    """Write the files at the top of this module, all or none.

    Returns
    -------
    The files written.
    """
    stages = stages or Stages(False)
    with folder.filled() as stage:
        _write_maps(stage, fit)
        _write_parcels(stage, fit)
        _write_tables(stage, fit)
        write_json(stage / PROVENANCE, fit.provenance or {})
        if fit.methods:
            (stage / METHODS).write_text(fit.methods, encoding="utf-8", newline="\n")
        fit.model.save(stage / MODEL)
        save_diagnostics(fit.diagnostics, stage / DIAGNOSTICS)
        with stages.stage("report") as report:
            components = draw_components(fit)
            if components is not None:
                (stage / COMPONENTS).write_bytes(components)
            tables = tables_beside(stage, stage)
            # A selection that was made before the fit lies in the folder already.
            if fit.selection.choice is not None and (folder.path / CURVES).is_file():
                tables[CURVES] = CURVES
            write_report(stage, fit, tables, folder.figures, report)
    return folder.files


# ---------------------------------------------------------------------- figures and maps


def _write_maps(folder: Path, fit: FitDescription) -> None:
    if fit.cortex.mean:
        for hemisphere in fit.cortex.hemispheres:
            file = folder / map_file(fit.mesh_name, SURFACE, hemisphere.side)
            coordinates = hemisphere.shapes["midthickness"]
            write_surface(file, coordinates, hemisphere.triangles, hemisphere.side)
    for measure, fit_of_measure in fit.by_measure():
        _write_measure(folder, fit_of_measure, measure or OWN)
    measures = fit.model.measures_
    if measures is not None and measures.share == "maps" and not measures.plain:
        # Shared maps have no units, so they are written in those of each measure too.
        for measure, maps in measures.maps(fit.model.components_).items():
            _write_measure(folder, fit.with_maps(maps), measure)


def _write_measure(folder: Path, fit: FitDescription, measure: str) -> None:
    """Write the maps of one measure."""
    model = fit.model
    sites = model.sites_
    mask = model.mask_
    if sites.regions is not None:
        _write_regions(folder / table_file("regions.tsv", measure), fit)
        if mask is None:
            # Not all vertices belong to a region.
            mask = np.ones(sites.n, dtype=bool)
    if not sites.placed:
        return
    maps = sites.on_surface(model.components_)
    is_used = None if mask is None else sites.on_surface(mask, False)
    mesh = fit.mesh_name
    for side, columns in map_columns(maps.shape[1], model.hemi_, mesh):
        file = folder / map_file(mesh, _MAPS, side, measure)
        write_maps(file, maps[:, columns], side, fit.labels)
        if is_used is not None:
            file = folder / map_file(mesh, _MASK, side, measure)
            write_maps(file, is_used[columns], side, ["mask"])
    if not is_fs_lr(mesh):
        return
    components = model.components_
    if sites.regions is not None:
        file = folder / map_file(mesh, _PSCALAR, desc=measure)
        write_pscalar(file, components, sites.regions, fit.labels)
    else:
        file = folder / map_file(mesh, _DSCALAR, desc=measure)
        write_dscalar(file, components, model.hemi_, fit.labels, model.mask_)


def _write_regions(path: Path, fit: FitDescription) -> None:
    """Write every component in every region."""
    regions = fit.model.sites_.regions
    names = numbered("component", len(fit.labels))
    table: dict[str, Any] = {"region": list(regions.names)}
    if regions.placed:
        table["n_vertices"] = regions.sizes
    table["parcel"] = fit.diagnostics.parcellation
    table["median"] = fit.diagnostics.median
    table |= dict(zip(names, fit.model.components_, strict=True))
    titles = {
        name: {"LongName": title, "Description": "Its map"}
        for name, title in zip(names, fit.titles, strict=True)
    }
    write_table(path, table, _REGION_COLUMNS | titles)


def _write_parcels(folder: Path, fit: FitDescription) -> None:
    """Write the parcellation as label files and as a table."""
    n_components = len(fit.model.components_)
    colours = distinct_colours(n_components)
    table: dict[str, Any] = {
        "index": np.arange(1, n_components + 1),
        "name": fit.labels,
        "color": ["#{:02x}{:02x}{:02x}".format(*colour) for colour in colours],
    }
    meanings = dict(_PARCEL_COLUMNS)
    size = "n_vertices" if fit.model.sites_.placed else "n_regions"
    for measure, fit_of_measure in fit.by_measure():
        labels = _write_labels(folder, fit_of_measure, colours, measure or OWN)
        column = f"{size}_{measure}" if measure else size
        # Label 0 is for sites without a component.
        table[column] = np.bincount(labels, minlength=n_components + 1)[1:]
        meanings[column] = _PARCEL_COLUMNS[size]
    write_table(folder / _PARCELS, table, meanings)


def _write_labels(
    folder: Path, fit: FitDescription, colours: np.ndarray, measure: str
) -> np.ndarray:
    """Write the parcellation of one measure; return its labels, on vertices if possible."""
    model = fit.model
    mesh = fit.mesh_name
    names = fit.labels
    labels = fit.diagnostics.parcellation
    if not model.sites_.placed:
        return labels
    labels = model.sites_.on_surface(labels)
    # FreeSurfer's tables of regions have spaces between their columns.
    names_without_spaces = ["_".join(name.replace(" %", "%").split()) for name in names]
    for side, columns in map_columns(len(labels), model.hemi_, mesh):
        file = folder / map_file(mesh, _LABELS, side, measure)
        write_label_gii(file, labels[columns], side, names, colours)
        file = folder / map_file(mesh, _ANNOT, side, measure)
        write_annot(file, labels[columns], names_without_spaces, colours)
    if is_fs_lr(mesh):
        # With regions, the mask is one of regions, not of vertices.
        mask = None if model.sites_.regions is not None else model.mask_
        file = folder / map_file(mesh, _DLABEL, desc=measure)
        write_dlabel(file, labels, model.hemi_, names, colours, mask)
    return labels


def map_columns(n_sites: int, hemi: str | None, mesh_name: str) -> list[tuple[str, slice]]:
    """Return the hemispheres and their columns of the maps.

    Maps that files per hemisphere cannot hold are refused.
    """
    sides = hemispheres(hemi)
    n_vertices = vertices_per_side(mesh_name)
    n_per_side = n_sites // len(sides) if n_vertices is None else n_vertices
    if n_sites != n_per_side * len(sides):
        expected = f"{n_vertices} vertices per hemisphere"
        if n_vertices is None:
            expected = "an even number of sites"
        raise ArgumentError(
            "cohort",
            f"has {n_sites} sites; it should have {expected}, as {mesh_name} with hemi={hemi!r} "
            "has",
        )
    return [
        (side, slice(number * n_per_side, (number + 1) * n_per_side))
        for number, side in enumerate(sides)
    ]


# ---------------------------------------------------------------------- tables


def _write_tables(folder: Path, fit: FitDescription) -> None:
    loadings = fit.model.loadings_
    participants = fit.participants
    # With several scans per person, the tables have all scans.
    if fit.table is not None:
        loadings = fit.table.loadings
        participants = fit.table.participants
    rows: Mapping[str, Any] = {"participant_id": list(fit.subjects)}
    if fit.people is not None:
        rows = fit.people.columns
    columns = dict(zip(numbered("component", loadings.shape[1]), loadings.T, strict=True))
    write_table(folder / LOADINGS, {**rows, **columns}, _loading_columns(fit))
    _write_components(folder, fit)
    if participants:
        columns = {name: values for name, values in participants.items() if name not in rows}
        meanings = dict.fromkeys(columns, GIVEN)
        write_table(folder / PARTICIPANTS, {**rows, **columns}, meanings, digits=None)


def _loading_columns(fit: FitDescription) -> dict[str, dict[str, str]]:
    """Return titles and meanings of the columns of loadings."""
    meaning = meaning_of(fit.model, fit.diagnostics.modality, fit.diagnostics.units)
    numbers = numbered("component", len(fit.labels))
    return {
        number: {"LongName": title, "Description": meaning}
        for number, title in zip(numbers, fit.titles, strict=True)
    }


def _write_components(folder: Path, fit: FitDescription) -> None:
    table: dict[str, Any] = {"component": numbered("component", len(fit.labels))}
    if any(fit.atlas_names):
        table["name"] = [name or None for name in fit.atlas_names]
    write_table(folder / _COMPONENT_TABLE, {**table, **component_table(fit)}, _COMPONENT_COLUMNS)


def component_table(fit: FitDescription) -> dict[str, np.ndarray]:
    """Return shares of variance and of the sites, and recurrence, one value per component."""
    diagnostics = fit.diagnostics
    recurrence = fit.model.recurrence_
    if recurrence is None:
        recurrence = np.full(len(diagnostics.alone), np.nan)
    # Overlapping maps may carry more than all of the variance.
    alone = np.where(diagnostics.alone <= 1, diagnostics.alone, np.nan)
    return {
        "variance_alone": alone,
        "variance_unique": diagnostics.unique,
        "extent": diagnostics.extent,
        "recurrence": recurrence,
        "l1_B": diagnostics.l1_B,
        "l1_C": diagnostics.l1_C,
    }


# ---------------------------------------------------------------------- names from an atlas


def overlap_place(
    folder: Path, model: Path, overwrite: bool = False, **options: Any
) -> Publication:
    """Return the folder for the overlap with an atlas, checked.

    In the folder of the fit, files that name components are renewed.
    """
    is_of_fit = model_at(model).absolute() == (folder / MODEL).absolute()
    return Publication(
        folder,
        overwrite,
        names=[OVERLAP, sidecar(OVERLAP).name],
        renewed=_renewed(folder) if is_of_fit else (),
        **options,
    )


def _renewed(folder: Path) -> list[str]:
    """Return files of a fit that name components, except those that the user has changed since."""
    tables = (_COMPONENT_TABLE, _PARCELS, _REGIONS)
    endings = [f"_{ending}" for ending in _NAMED_MAPS]
    endings += [*tables, *(sidecar(table).name for table in (*tables, LOADINGS))]
    return [
        name
        for name, sha256 in list_of(folder).items()
        if name.endswith(tuple(endings))
        and (folder / name).is_file()
        and hash_file(folder / name) == sha256
    ]


def write_names(overlap: Overlap, folder: Publication, model: Any) -> None:
    """Write atlas_overlap.tsv, and the names of components into the fit's files; all or none."""
    with folder.filled() as stage:
        write_overlap(overlap, stage / OVERLAP)
        if not folder.renewed:
            return
        table = {name: list(column) for name, column in with_names(overlap).items()}
        fit = FitDescription(
            model,
            load_diagnostics(folder.path / DIAGNOSTICS),
            Cortex(()),
            selection=SelectionFiles(overlap=table),
        )
        _write_maps(stage, fit)
        _write_parcels(stage, fit)
        _write_components(stage, fit)
        record = sidecar(LOADINGS).name
        if record in folder.renewed:
            entries = {**read_json(folder.path / record), **_loading_columns(fit)}
            write_json(stage / record, entries)
        # Files that the user has changed, or removed, stay as they are.
        for file in stage.iterdir():
            if file.name not in (OVERLAP, sidecar(OVERLAP).name, *folder.renewed):
                file.unlink()


def write_dataset_description(folder: Path, name: str) -> None:
    """Write dataset_description.json of a BIDS derivative."""
    try:
        own_version = version("icofactor")
    except PackageNotFoundError:
        own_version = "unknown"
    description = {
        "Name": name,
        "BIDSVersion": _BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "icofactor", "Version": own_version}],
    }
    write_json(folder / _DESCRIPTION, description)
