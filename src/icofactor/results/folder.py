"""A fit as a folder, whole or not at all.

`write_fit` fills a folder as a BIDS derivative of a group:

    dataset_description.json                                         DatasetType "derivative", GeneratedBy icofactor
    hemi-L_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   one map per component
    hemi-R_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   (for two hemispheres)
    hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii         1 where a vertex was used (with a mask)
    hemi-L_space-fsaverage_den-10k_desc-icofactor_dseg.label.gii         winner-takes-all parcellation
    hemi-L_space-fsaverage_den-10k_desc-icofactor_dseg.annot             the same for FreeSurfer
    space-fsLR_den-32k_desc-icofactor_components.dscalar.nii             all hemispheres (on fs_LR 32k only)
    space-fsLR_den-32k_desc-icofactor_components.pscalar.nii             the same for parcels (on fs_LR 32k only)
    desc-icofactor_dseg.tsv                                          index, name and colour of each parcel
    desc-icofactor_regions.tsv                                       every component in every region (of parcels only)
    desc-icofactor_components.tsv                                    variance, extent and recurrence of each component
    desc-icofactor_loadings.tsv                                      participant_id (and session_id), component01, ...
    desc-icofactor_participants.tsv                                  (when anything is known about them)
    provenance.json, methods.md                                      how it came about; a paragraph for the paper
    model.zip, diagnostics.npz                                       what `load_model` and the report read
    components.png, report.html                                      all components; the page
    figures/                                                         every other panel of the page as PNG and PDF
    tables/                                                          what the page shows and no table above has

`icofactor.io.publish` makes them appear together and lists them with those that `select`, `report` and others add, so
that overwriting replaces all of them and nothing else. No table has the name of one that a BIDS dataset has. Meshes
other than fsaverage's and fs_LR have their own name as space and no density.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, Phrase
from icofactor.estimator.saving import MODEL
from icofactor.io.cifti import write_dscalar, write_pscalar
from icofactor.io.freesurfer import write_annot
from icofactor.io.gifti import write_label_gii, write_maps
from icofactor.io.publish import FIGURES, Names, Publication
from icofactor.io.tables import numbered, write_json, write_tsv
from icofactor.progress import Stages
from icofactor.results.colours import distinct_colours
from icofactor.results.description import DIAGNOSTICS, LOADINGS, METHODS, PROVENANCE, FitDescription
from icofactor.results.diagnostics import save_diagnostics
from icofactor.results.report.page import PAGE, panels_in, render_page
from icofactor.results.report.panels import COMPONENTS, drawn_components, drawn_panels
from icofactor.results.report.selection_files import CURVES
from icofactor.results.report.tables import SUMMARY, tables_beside, write_page_tables
from icofactor.sphere.names import hemispheres, is_fs_lr, map_file, table_file, vertices_per_side

_BIDS_VERSION = "1.10.0"
PARTICIPANTS, _PARCELS, _TABLE = map(table_file, ("participants.tsv", "dseg.tsv", "components.tsv"))
_REGIONS = table_file("regions.tsv")
_DESCRIPTION, _FIGURE = "dataset_description.json", COMPONENTS
_COMPONENTS, _MASK, _LABELS, _ANNOT = "components.shape.gii", "mask.shape.gii", "dseg.label.gii", "dseg.annot"
_DSCALAR, _PSCALAR = "components.dscalar.nii", "components.pscalar.nii"
_ALWAYS = (
    *(LOADINGS, _TABLE, PARTICIPANTS, _PARCELS, _REGIONS, _DESCRIPTION, _FIGURE),
    *(PROVENANCE, METHODS, MODEL, DIAGNOSTICS, PAGE),
)
"""Names of files that do not depend on the maps."""


class FitFolder(Publication):
    """The folder that a fit is written to: checked when this is made, before any work, and once more when it is filled.

    Parameters
    ----------
    path : made when missing.
    overwrite : whether to replace an earlier fit, with everything that icofactor has written about it.
    figures : whether figures/ will be written.
    inputs : what is read for the fit; see `Publication`.
    """

    def __init__(
        self, path: str | Path, overwrite: bool = False, figures: bool = True, inputs: Iterable[str | Path] = ()
    ) -> None:
        self.figures = figures
        place, kinds = Path(path), (_COMPONENTS, _MASK, _LABELS, _ANNOT, _DSCALAR, _PSCALAR)
        maps = [] if overwrite else [found.name for kind in kinds for found in place.glob(f"*_{table_file(kind)}")]
        names = [*sorted([*_ALWAYS, *maps]), *(panels_in(place) if figures else [])]
        super().__init__(path, overwrite, names=names, leaving=_of_earlier_fit, inputs=inputs)
        self.check([SUMMARY])

    @property
    def replaces(self) -> bool:
        """Whether there is an earlier fit."""
        return _DESCRIPTION in self.owned()

    def check_maps(self, mesh: str, hemi: str | None) -> None:
        """Refuse what lies where the maps of this mesh would be written."""
        kinds = (_COMPONENTS, _MASK, _LABELS, _ANNOT)
        self.check([map_file(mesh, kind, side) for kind in kinds for side in hemispheres(hemi)])

    @contextmanager
    def filled(self) -> Iterator[Path]:
        """A private folder to fill; when the block ends, all its files appear in the folder, or none."""
        with super().filled() as new:
            yield new
            write_dataset_description(new, "Factorization of cortical maps")


def _of_earlier_fit(listed: Names) -> Iterable[str]:
    """With a fit goes what was written about it; without one, a selection of the number of components stays."""
    return listed if _DESCRIPTION in listed else ()


def write_fit(fit: FitDescription, place: FitFolder, stages: Stages | None = None) -> list[Path]:
    """A fit as a folder; the files are listed at the top of this module. All of them appear, or none.

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
        _draw(new, fit, place.figures, stages)
        with stages.stage("report"):
            tables = {name: name for name in write_page_tables(new, fit)}
            tables |= tables_beside(new, new)
            if fit.selection.choice is not None and (place.path / CURVES).is_file():
                tables[CURVES] = CURVES
            (new / PAGE).write_text(render_page(fit, tables), encoding="utf-8", newline="\n")
    return place.files


def _draw(folder: Path, fit: FitDescription, figures: bool, stages: Stages) -> None:
    """Figures, and all components on one page; when they are few that is a panel, and its PNG is written here only."""
    components = None
    if figures:
        (folder / FIGURES).mkdir()
        with stages.stage("figures") as show:
            for name, content, done in drawn_panels(fit):
                if name == _FIGURE:
                    components = content
                else:
                    (folder / FIGURES / name).write_bytes(content)
                show(done)
    if components is None and fit.cortex.hemispheres:
        with stages.stage("figure"):
            components = drawn_components(fit)
    if components is not None:
        (folder / _FIGURE).write_bytes(components)


def _write_maps(folder: Path, fit: FitDescription) -> None:
    model, mesh = fit.model, fit.mesh_name
    names, sites, mask = numbered("component", len(model.components_)), model.sites_, model.mask_
    if sites.regions is not None:
        _write_regions(folder, fit, names)
        mask = np.ones(sites.n, dtype=bool) if mask is None else mask
    if not sites.placed:
        return
    maps, mask = sites.on_surface(model.components_), None if mask is None else sites.on_surface(mask, False)
    for side, columns in map_columns(maps.shape[1], model.hemi_, mesh):
        write_maps(folder / map_file(mesh, _COMPONENTS, side), maps[:, columns], side, names)
        if mask is not None:
            write_maps(folder / map_file(mesh, _MASK, side), mask[columns], side, ["mask"])
    if is_fs_lr(mesh) and sites.regions is not None:
        write_pscalar(folder / map_file(mesh, _PSCALAR), model.components_, sites.regions, names)
    elif is_fs_lr(mesh):
        write_dscalar(folder / map_file(mesh, _DSCALAR), model.components_, model.hemi_, names, model.mask_)


def _write_regions(folder: Path, fit: FitDescription, names: list[str]) -> None:
    """Every component in every region."""
    model, d = fit.model, fit.diagnostics
    regions = model.sites_.regions
    table = {"region": list(regions.names), "n_vertices": regions.sizes} if regions.placed else {}
    table = {"region": list(regions.names), **table, "parcel": d.parcellation, "median": d.median}
    write_tsv(folder / _REGIONS, {**table, **dict(zip(names, model.components_, strict=True))})


def _write_parcels(folder: Path, fit: FitDescription) -> None:
    model, mesh, labels = fit.model, fit.mesh_name, fit.diagnostics.parcellation
    k = len(model.components_)
    names, colours = numbered("component", k), distinct_colours(k)
    sizes = np.bincount(labels, minlength=k + 1)[1:]
    if model.sites_.placed:
        labels = model.sites_.on_surface(labels)
        sizes = np.bincount(labels, minlength=k + 1)[1:]
        for side, columns in map_columns(len(labels), model.hemi_, mesh):
            write_label_gii(folder / map_file(mesh, _LABELS, side), labels[columns], side, names, colours)
            write_annot(folder / map_file(mesh, _ANNOT, side), labels[columns], names, colours)
    what = "n_vertices" if model.sites_.placed else "n_regions"
    hexadecimal = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in colours]
    index = np.arange(1, k + 1)
    write_tsv(folder / _PARCELS, {"index": index, "name": names, "color": hexadecimal, what: sizes})


def _write_tables(folder: Path, fit: FitDescription) -> None:
    subjects = {"participant_id": list(fit.subjects)} if fit.people is None else fit.people.columns
    loadings = fit.model.loadings_ if fit.table is None else fit.table.loadings
    participants = fit.participants if fit.table is None else fit.table.participants
    names = numbered("component", loadings.shape[1])
    write_tsv(folder / LOADINGS, {**subjects, **dict(zip(names, loadings.T, strict=True))})
    write_tsv(folder / _TABLE, {"component": names, **component_table(fit)})
    if participants:
        rest = {name: column for name, column in participants.items() if name not in subjects}
        write_tsv(folder / PARTICIPANTS, {**subjects, **rest}, digits=None)


def component_table(fit: FitDescription) -> dict[str, np.ndarray]:
    """One value per component: shares of the between-subject variance and of the sites, and recurrence."""
    d, recurrence = fit.diagnostics, fit.model.recurrence_
    unknown = np.full(len(d.alone), np.nan)
    return {
        "variance_alone": d.alone,
        "variance_unique": d.unique,
        "extent": d.extent,
        "recurrence": unknown if recurrence is None else recurrence,
    }


def map_columns(n_sites: int, hemi: str | None, mesh_name: str) -> list[tuple[str, slice]]:
    """Hemispheres, and which columns of the maps are theirs; refuses maps that a file per hemisphere cannot hold."""
    sides, known = hemispheres(hemi), vertices_per_side(mesh_name)
    per_side = n_sites // len(sides) if known is None else known
    if n_sites != per_side * len(sides):
        expected = "an even number of sites" if known is None else f"{known} vertices per hemisphere"
        raise ArgumentError(
            "cohort", Phrase(f"{n_sites} sites"), f"on {expected}, as {mesh_name} with {{hemi={hemi!r}}} is"
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
