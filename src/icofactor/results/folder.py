"""A fit as a folder, whole or not at all.

`write_fit` fills a folder as a BIDS derivative of a group:

    dataset_description.json                                         DatasetType "derivative",
    GeneratedBy icofactor hemi-L_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   one
    map per component hemi-R_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   (for two
    hemispheres) hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii         1 where a
    vertex was used (with a mask) hemi-L_space-fsaverage_den-10k_desc-icofactor_dseg.label.gii
    winner-takes-all parcellation hemi-L_space-fsaverage_den-10k_desc-icofactor_dseg.annot
    the same for FreeSurfer hemi-L_space-civet_den-41k_desc-icofactor_midthickness.surf.gii
    mean of the subjects' surfaces, where drawn on
    space-fsLR_den-32k_desc-icofactor_components.dscalar.nii             all hemispheres (on fs_LR
    32k only) space-fsLR_den-32k_desc-icofactor_components.pscalar.nii             the same for
    parcels (on fs_LR 32k only) space-fsLR_den-32k_desc-icofactor_dseg.dlabel.nii
    the parcellation (on fs_LR 32k only) desc-icofactor_dseg.tsv
    index, name and colour of each parcel desc-icofactor_regions.tsv
    every component in every region (of parcels only) desc-icofactor_components.tsv
    variance, extent and recurrence of each component desc-icofactor_loadings.tsv
    participant_id (and session_id), component01, ... desc-icofactor_participants.tsv
    (when anything is known about them) desc-icofactor_dseg.json, ...
    what the columns of each table hold
    ..._desc-thickness_components.shape.gii, ...                     of several measures, the maps of each in its units
    provenance.json, methods.md                                      how it came about; a paragraph
    for the paper model.zip, diagnostics.npz                                       what `load_model`
    and the report read components.png, report.html                                      all
    components; the page
    figures/                                                         charts of the page, as SVG
    tables/                                                          numbers of the page

`icofactor.io.publish` makes them appear together and lists them with those that `select`, `report`
and others add, so that overwriting replaces all of them and nothing else. No table has the name of
one that a BIDS dataset has.

Components are numbered. Once `icofactor select --atlas` has found where they lie, `name_components`
gives those that
an atlas names (q ≤ 0.05) their names in the label tables and in what describes the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.assessment.atlas import Overlap, with_names, write_overlap
from icofactor.errors import ArgumentError, Phrase
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
from icofactor.results.report.page import (
    COMPONENTS,
    PAGE,
    draw_components,
    panels_in,
    write_report,
)
from icofactor.results.report.selection_files import CURVES, OVERLAP, SelectionFiles
from icofactor.results.report.surfaces import Cortex
from icofactor.results.report.tables import SUMMARY, tables_beside
from icofactor.sphere.names import (
    OWN,
    hemispheres,
    is_fs_lr,
    map_file,
    table_file,
    vertices_per_side,
)

_BIDS_VERSION = "1.10.0"
PARTICIPANTS, _PARCELS, _TABLE = map(table_file, ("participants.tsv", "dseg.tsv", "components.tsv"))
_REGIONS = table_file("regions.tsv")
_DESCRIPTION = "dataset_description.json"
_COMPONENTS, _MASK, _LABELS, _ANNOT = (
    "components.shape.gii",
    "mask.shape.gii",
    "dseg.label.gii",
    "dseg.annot",
)
_DSCALAR, _PSCALAR, _DLABEL = "components.dscalar.nii", "components.pscalar.nii", "dseg.dlabel.nii"
_NAMED = (_COMPONENTS, _LABELS, _ANNOT, _DSCALAR, _PSCALAR, _DLABEL)
"""Maps and labels, which hold names of components."""
_json = lambda table: sidecar(table).name
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
    "variance_alone": "Share of the between-subject variance that its map times its loadings carries",
    "variance_unique": "Share that its loadings add to those of all others, by linear regression",
    "extent": "Share of the sites where the map exceeds 5 % of its largest value",
    "recurrence": "Share of the other random starts on the same people that fit as well and reach it; n/a if unknown",
    "l1_B": "Sum of absolute values of B, in the coordinates of the fit",
    "l1_C": "Sum of absolute values of C, in the coordinates of the fit",
}
_TABLES = (LOADINGS, _TABLE, PARTICIPANTS, _PARCELS, _REGIONS)
_ALWAYS = (
    *(*_TABLES, *map(_json, _TABLES), _DESCRIPTION, COMPONENTS),
    *(PROVENANCE, METHODS, MODEL, DIAGNOSTICS, PAGE),
)
"""Names of files that do not depend on the maps."""


class FitFolder(Publication):
    """The folder that a fit is written to: checked when this is made, before any work, and once
    more when it is filled.

    Parameters
    ----------
    path : made when missing.
    overwrite : whether to replace an earlier fit, with everything that icofactor has written about
        it.
    figures : whether figures/ will be written.
    inputs : what is read for the fit; see `Publication`.
    """

    def __init__(
        self,
        path: str | Path,
        overwrite: bool = False,
        figures: bool = True,
        inputs: Iterable[str | Path] = (),
    ) -> None:
        self.figures = figures
        place, kinds = Path(path), (_MASK, *_NAMED)
        maps = (
            []
            if overwrite
            else [found.name for kind in kinds for found in place.glob(f"*_desc-*_{kind}")]
        )
        names = [*sorted([*_ALWAYS, *maps]), *(panels_in(place) if figures else [])]
        super().__init__(path, overwrite, names=names, leaving=_of_earlier_fit, inputs=inputs)
        self.check([SUMMARY])

    @property
    def replaces(self) -> bool:
        """Whether there is an earlier fit."""
        return _DESCRIPTION in self.owned()

    def check_maps(self, mesh: str, hemi: str | None, measures: Iterable[str] = ()) -> None:
        """Refuse what lies where the maps of this mesh would be written."""
        kinds, about = (_COMPONENTS, _MASK, _LABELS, _ANNOT), (OWN, *measures)
        self.check(
            [
                map_file(mesh, kind, side, desc)
                for kind in kinds
                for side in hemispheres(hemi)
                for desc in about
            ]
        )

    @contextmanager
    def filled(self) -> Iterator[Path]:
        """A private folder to fill; when the block ends, all its files appear in the folder, or
        none.
        """
        with super().filled() as new:
            yield new
            write_dataset_description(new, "Factorization of cortical maps")


def _of_earlier_fit(listed: Names) -> Iterable[str]:
    """With a fit goes what was written about it; without one, a selection of the number of
    components stays.
    """
    return listed if _DESCRIPTION in listed else ()


def write_fit(fit: FitDescription, place: FitFolder, stages: Stages | None = None) -> list[Path]:
    """A fit as a folder; the files are listed at the top of this module. All of them appear, or
    none.

    Returns
    -------
    The files written.
    """
    stages = stages or Stages(False)
    with place.filled() as new:
        _write_maps(new, fit)
        _write_parcels(new, fit)
        _write_tables(new, fit)
        write_json(new / PROVENANCE, fit.provenance or {})
        if fit.methods:
            (new / METHODS).write_text(fit.methods, encoding="utf-8", newline="\n")
        fit.model.save(new / MODEL)
        save_diagnostics(fit.diagnostics, new / DIAGNOSTICS)
        with stages.stage("report") as show:
            components = draw_components(fit)
            if components is not None:
                (new / COMPONENTS).write_bytes(components)
            tables = tables_beside(new, new)
            if fit.selection.choice is not None and (place.path / CURVES).is_file():
                tables[CURVES] = CURVES
            write_report(new, fit, tables, place.figures, show)
    return place.files


def _write_maps(folder: Path, fit: FitDescription) -> None:
    for half in fit.cortex.hemispheres if fit.cortex.mean else ():
        place = folder / map_file(fit.mesh_name, SURFACE, half.side)
        write_surface(place, half.shapes["midthickness"], half.triangles, half.side)
    for measure, one in fit.by_measure():
        _write_map_files(folder, one, measure or OWN)
    measures = fit.model.measures_
    if (
        measures is not None and measures.share == "maps" and not measures.plain
    ):  # in the units of each
        for measure, maps in measures.maps(fit.model.components_).items():
            _write_map_files(folder, fit.with_maps(maps), measure)


def _write_map_files(folder: Path, fit: FitDescription, desc: str) -> None:
    model, mesh, names = fit.model, fit.mesh_name, fit.labels
    sites, mask = model.sites_, model.mask_
    if sites.regions is not None:
        _write_regions(folder / table_file("regions.tsv", desc), fit)
        mask = np.ones(sites.n, dtype=bool) if mask is None else mask
    if not sites.placed:
        return
    maps, mask = (
        sites.on_surface(model.components_),
        None if mask is None else sites.on_surface(mask, False),
    )
    for side, columns in map_columns(maps.shape[1], model.hemi_, mesh):
        write_maps(folder / map_file(mesh, _COMPONENTS, side, desc), maps[:, columns], side, names)
        if mask is not None:
            write_maps(folder / map_file(mesh, _MASK, side, desc), mask[columns], side, ["mask"])
    if is_fs_lr(mesh) and sites.regions is not None:
        write_pscalar(
            folder / map_file(mesh, _PSCALAR, desc=desc), model.components_, sites.regions, names
        )
    elif is_fs_lr(mesh):
        write_dscalar(
            folder / map_file(mesh, _DSCALAR, desc=desc),
            model.components_,
            model.hemi_,
            names,
            model.mask_,
        )


def _write_regions(path: Path, fit: FitDescription) -> None:
    """Every component in every region."""
    model, d, names = fit.model, fit.diagnostics, numbered("component", len(fit.labels))
    regions = model.sites_.regions
    table = {"region": list(regions.names), "n_vertices": regions.sizes} if regions.placed else {}
    table = {"region": list(regions.names), **table, "parcel": d.parcellation, "median": d.median}
    about = _REGION_COLUMNS | {
        name: {"LongName": title, "Description": "Its map"}
        for name, title in zip(names, fit.titles, strict=True)
    }
    write_table(path, {**table, **dict(zip(names, model.components_, strict=True))}, about)


def _write_parcels(folder: Path, fit: FitDescription) -> None:
    k, names = len(fit.model.components_), fit.labels
    colours = distinct_colours(k)
    hexadecimal = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in colours]
    table: dict[str, Any] = {"index": np.arange(1, k + 1), "name": names, "color": hexadecimal}
    about = dict(_PARCEL_COLUMNS)
    for measure, one in fit.by_measure():
        what = "n_vertices" if fit.model.sites_.placed else "n_regions"
        column = f"{what}_{measure}" if measure else what
        table[column], about[column] = (
            _write_labels(folder, one, colours, measure or OWN),
            _PARCEL_COLUMNS[what],
        )
    write_table(folder / _PARCELS, table, about)


def _write_labels(folder: Path, fit: FitDescription, colours: np.ndarray, desc: str) -> np.ndarray:
    """The parcellation of one measure; the sizes of its parcels."""
    model, mesh, names, labels = fit.model, fit.mesh_name, fit.labels, fit.diagnostics.parcellation
    if model.sites_.placed:
        labels = model.sites_.on_surface(labels)
        # FreeSurfer's tables of regions have spaces between their columns
        joined = ["_".join(name.replace(" %", "%").split()) for name in names]
        for side, columns in map_columns(len(labels), model.hemi_, mesh):
            write_label_gii(
                folder / map_file(mesh, _LABELS, side, desc), labels[columns], side, names, colours
            )
            write_annot(
                folder / map_file(mesh, _ANNOT, side, desc), labels[columns], joined, colours
            )
        if is_fs_lr(mesh):
            mask = None if model.sites_.regions is not None else model.mask_
            write_dlabel(
                folder / map_file(mesh, _DLABEL, desc=desc),
                labels,
                model.hemi_,
                names,
                colours,
                mask,
            )
    return np.bincount(labels, minlength=len(names) + 1)[1:]


def _write_tables(folder: Path, fit: FitDescription) -> None:
    subjects = {"participant_id": list(fit.subjects)} if fit.people is None else fit.people.columns
    loadings = fit.model.loadings_ if fit.table is None else fit.table.loadings
    participants = fit.participants if fit.table is None else fit.table.participants
    columns = dict(zip(numbered("component", loadings.shape[1]), loadings.T, strict=True))
    write_table(folder / LOADINGS, {**subjects, **columns}, _loading_columns(fit))
    _write_components(folder, fit)
    if participants:
        rest = {name: column for name, column in participants.items() if name not in subjects}
        write_table(
            folder / PARTICIPANTS, {**subjects, **rest}, dict.fromkeys(rest, GIVEN), digits=None
        )


def _loading_columns(fit: FitDescription) -> dict[str, dict[str, str]]:
    """What the columns of loadings are called and mean."""
    d, numbers = fit.diagnostics, numbered("component", len(fit.labels))
    told = {"Description": meaning_of(fit.model, d.modality, d.units)}
    return {
        number: {"LongName": title, **told}
        for number, title in zip(numbers, fit.titles, strict=True)
    }


def _write_components(folder: Path, fit: FitDescription) -> None:
    numbers = numbered("component", len(fit.labels))
    names: dict[str, Any] = (
        {"name": [name or None for name in fit.atlas_names]} if any(fit.atlas_names) else {}
    )
    write_table(
        folder / _TABLE, {"component": numbers, **names, **component_table(fit)}, _COMPONENT_COLUMNS
    )


# ---------------------------------------------------------------------- names


def overlap_place(folder: Path, model: Path, overwrite: bool = False, **more: Any) -> Publication:
    """The folder for the overlap with an atlas, checked; in that of the fit, files get the names of
    its components.
    """
    own = model_at(model).absolute() == (folder / MODEL).absolute()
    names = [OVERLAP, _json(OVERLAP)]
    return Publication(
        folder, overwrite, names=names, renewed=_renewed(folder) if own else (), **more
    )


def _renewed(folder: Path) -> list[str]:
    """Files of a fit that hold names of components, less those that the user has changed since."""
    tables = (_TABLE, _PARCELS, _REGIONS)
    named = (*(f"_{kind}" for kind in _NAMED), *tables, *map(_json, (*tables, LOADINGS)))
    listed = [(name, known) for name, known in list_of(folder).items() if name.endswith(named)]
    return [
        name
        for name, known in listed
        if (folder / name).is_file() and hash_file(folder / name) == known
    ]


def write_names(found: Overlap, place: Publication, model: Any) -> None:
    """atlas_overlap.tsv, and the names of components wherever the fit's files have them; all or
    none.
    """
    with place.filled() as new:
        write_overlap(found, new / OVERLAP)
        if not place.renewed:
            return
        selection = SelectionFiles(
            overlap={name: list(column) for name, column in with_names(found).items()}
        )
        fit = FitDescription(
            model, load_diagnostics(place.path / DIAGNOSTICS), Cortex(()), selection=selection
        )
        _write_maps(new, fit)
        _write_parcels(new, fit)
        _write_components(new, fit)
        if _json(LOADINGS) in place.renewed:
            about = {**read_json(place.path / _json(LOADINGS)), **_loading_columns(fit)}
            write_json(new / _json(LOADINGS), about)
        for file in new.iterdir():
            if file.name not in (OVERLAP, _json(OVERLAP), *place.renewed):
                file.unlink()


def component_table(fit: FitDescription) -> dict[str, np.ndarray]:
    """One value per component: shares of the between-subject variance and of the sites, and
    recurrence.
    """
    d, recurrence = fit.diagnostics, fit.model.recurrence_
    unknown = np.full(len(d.alone), np.nan)
    return {
        "variance_alone": np.where(
            d.alone <= 1, d.alone, np.nan
        ),  # overlapping maps may carry more than all of it
        "variance_unique": d.unique,
        "extent": d.extent,
        "recurrence": unknown if recurrence is None else recurrence,
        "l1_B": d.l1_B,
        "l1_C": d.l1_C,
    }


def map_columns(n_sites: int, hemi: str | None, mesh_name: str) -> list[tuple[str, slice]]:
    """Hemispheres, and which columns of the maps are theirs; refuses maps that a file per
    hemisphere cannot hold.
    """
    sides, known = hemispheres(hemi), vertices_per_side(mesh_name)
    per_side = n_sites // len(sides) if known is None else known
    if n_sites != per_side * len(sides):
        expected = (
            "an even number of sites" if known is None else f"{known} vertices per hemisphere"
        )
        raise ArgumentError(
            "cohort",
            Phrase(f"{n_sites} sites"),
            f"on {expected}, as {mesh_name} with {{hemi={hemi!r}}} is",
        )
    return [(side, slice(i * per_side, (i + 1) * per_side)) for i, side in enumerate(sides)]


def write_dataset_description(
    directory: str | Path,
    name: str = "icofactor",
    *,
    generated_by: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """dataset_description.json of a BIDS derivative.

    Parameters
    ----------
    name : name of the dataset.
    generated_by : further entries for icofactor's own GeneratedBy record.
    extra : further entries at the top, e.g. SourceDatasets.
    """
    try:
        own = version("icofactor")
    except PackageNotFoundError:
        own = "unknown"
    description = {
        "Name": name,
        "BIDSVersion": _BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "icofactor", "Version": own, **(generated_by or {})}],
        **(extra or {}),
    }
    return write_json(Path(directory) / _DESCRIPTION, description, overwrite=overwrite)
