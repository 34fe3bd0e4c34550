"""The description of a fit: one object, complete before anything is drawn or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.assessment.atlas import certain_names, read_regions
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.people import People, Scans, people_of
from icofactor.errors import ArgumentError, FileError
from icofactor.estimator.saving import MODEL, load_model
from icofactor.io.freesurfer import Labels
from icofactor.io.guard import naming
from icofactor.io.json import read_text
from icofactor.io.publish import reading
from icofactor.io.tables import numbered
from icofactor.results.diagnostics import Diagnostics, diagnose, load_diagnostics
from icofactor.results.methods_text import methods_text
from icofactor.results.provenance import provenance_of
from icofactor.results.report.association_files import (
    AssociationTables,
    LatentTables,
    NormTables,
    read_association_files,
    read_latent_files,
    read_norm_files,
)
from icofactor.results.report.selection_files import LOADINGS as LOADINGS
from icofactor.results.report.selection_files import (
    SelectionFiles,
    read_choice,
    read_record,
    read_selection_files,
)
from icofactor.results.report.surfaces import Cortex, Surfaces, cortex_or_reason
from icofactor.sphere.names import OWN, mesh_name_of

# Ending of the mean of the subjects' surfaces, in the folder of a fit.
SURFACE = "midthickness.surf.gii"
DIAGNOSTICS = "diagnostics.npz"
PROVENANCE = "provenance.json"
METHODS = "methods.md"
# Bytes of a methods paragraph that are read; a real one has a few thousand.
_MAX_METHODS = 2**20
# Arrays of the diagnostics that have a value per site.
_PER_SITE = ("median", "deviation", "explained_map", "parcellation", "depth")


@dataclass(frozen=True, eq=False)
class ScanTable:
    """Loadings of all scans, also of those that were not fitted, with their participants table."""

    loadings: np.ndarray
    participants: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class FitDescription:
    """A fit and everything about it; folder, page and figures are made from this alone.

    Attributes
    ----------
    model : fitted CorticalFactorization.
    diagnostics : diagnostics of the fit; files, page and figures use its parcellation.
    cortex : surfaces that maps are drawn on.
    provenance : configuration, inputs and versions; None when unknown.
    methods : the methods paragraph, in Markdown; "" when there is none.
    participants : column → one value per subject; empty when the description was read from a
        folder.
    selection : results of `icofactor select`.
    associations, latent, norm : results of `icofactor associate`: terms, latent variables,
        W-scores; None without them.
    regions : hemisphere → regions of an atlas on the vertices; None without an atlas.
    people : person and session of each row of the tables; None when the description was read from
        a folder.
    table : loadings of all scans if some were not fitted; else None.
    """

    model: Any
    diagnostics: Diagnostics
    cortex: Cortex
    provenance: Mapping[str, Any] | None = None
    methods: str = ""
    participants: Mapping[str, Any] = field(default_factory=dict)
    selection: SelectionFiles = field(default_factory=SelectionFiles)
    regions: Mapping[str, Labels] | None = None
    people: People | None = None
    table: ScanTable | None = None
    associations: AssociationTables | None = None
    latent: LatentTables | None = None
    norm: NormTables | None = None

    def __post_init__(self) -> None:
        problem = _difference(self.model, self.diagnostics)
        if problem is not None:
            raise ArgumentError("diagnostics", f"{problem}; give those of the model's own fit")
        for name, column in self.participants.items():
            if np.shape(column) != (len(self.subjects),):
                raise ArgumentError(
                    f"participants[{name!r}]",
                    f"has shape {np.shape(column)} for {len(self.subjects)} subjects; give one "
                    "value per subject",
                )

    @classmethod
    def of(
        cls,
        model: Any,
        diagnostics: Diagnostics,
        surfaces: Surfaces | None = None,
        atlas: Sequence[str | Path] | None = None,
        mean_of: Sequence[str | Path] = (),
        **attributes: Any,
    ) -> FitDescription:
        """Return the description of a fit, after reading surfaces and atlas.

        Parameters
        ----------
        surfaces : surface files or folders, for meshes other than fsaverage.
        atlas : one .annot or .label.gii per hemisphere, or one .dlabel.nii, to name regions.
        mean_of : surfaces of subjects, whose mean is drawn unless there are `surfaces`.
        attributes : further attributes of the description.
        """
        sites = model.sites_.one_copy()
        cortex = cortex_or_reason(sites, model.hemi_, surfaces, mean_of)
        if atlas and cortex.hemispheres:
            attributes["regions"] = read_regions(atlas, sites.surface, model.hemi_)
        elif sites.regions is not None and cortex.hemispheres:
            # Parcels are regions of an atlas themselves.
            labels = np.split(sites.regions.labels, sites.n_hemispheres)
            names = dict(enumerate(sites.regions.names))
            sides = [hemisphere.side for hemisphere in cortex.hemispheres]
            attributes["regions"] = {
                side: (numbers, names) for side, numbers in zip(sides, labels, strict=True)
            }
        return cls(model, diagnostics, cortex, **attributes)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names, in the order of the loadings."""
        return self.diagnostics.subjects

    def by_measure(self) -> list[tuple[str, FitDescription]]:
        """Return each measure and the fit with its maps; if maps are shared, one without name."""
        measures = self.model.measures_
        if measures is None or measures.share == "maps":
            return [("", self)]
        maps = measures.maps(self.model.components_)
        return [
            (name, self._of_measure(number, name, maps[name]))
            for number, name in enumerate(measures.names)
        ]

    def _of_measure(self, number: int, name: str, maps: np.ndarray) -> FitDescription:
        """Return the fit with the maps of one measure, in its units."""
        is_here = self.model.sites_.copy == number
        mask = None if self.model.mask_ is None else self.model.mask_[is_here]
        model = copy(self.model)
        model.sites_ = self.model.sites_.one_copy(number)
        model.components_ = maps
        model.centering_ = replace(self.model.centering_.at(is_here), measures=None)
        # A measure may use all of its sites where another one does not.
        model.mask_ = None if mask is None or mask.all() else mask
        per_site: dict[str, Any] = {
            attribute: getattr(self.diagnostics, attribute)[is_here] for attribute in _PER_SITE
        }
        units = self.model.measures_.units[number]
        diagnostics = replace(self.diagnostics, **per_site, modality=name, units=units)
        return replace(self, model=model, diagnostics=diagnostics)

    def with_maps(self, maps: np.ndarray) -> FitDescription:
        """Return the same fit with its maps in other units."""
        # The estimator is copied, because the caller's keeps its own maps.
        model = copy(self.model)
        model.components_ = maps
        return replace(self, model=model)

    @property
    def atlas_names(self) -> list[str]:
        """Names from an atlas, such as "bilateral insula (12.3 %)"; "" where q > 0.05."""
        return certain_names(self.selection.overlap, len(self.diagnostics.alone))

    @property
    def titles(self) -> list[str]:
        """Titles of components for pages and figures: "Component 1: bilateral insula (12.3 %)"."""
        return [
            f"Component {number}: {name}" if name else f"Component {number}"
            for number, name in enumerate(self.atlas_names, 1)
        ]

    @property
    def labels(self) -> list[str]:
        """Titles of components for files: "component01 bilateral insula (12.3 %)"."""
        numbers = numbered("component", len(self.diagnostics.alone))
        return [
            f"{number} {name}".strip()
            for number, name in zip(numbers, self.atlas_names, strict=True)
        ]

    @property
    def mesh_name(self) -> str:
        """Name of the mesh of the maps."""
        return mesh_name_of(self.model.sites_)


def describe_fit(
    model: Any,
    cohort: Any,
    adjusted: Any = None,
    *,
    scans: Scans | None = None,
    table: ScanTable | None = None,
    folder: str | Path | None = None,
    timing: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    report: Callable[[float], None] | None = None,
) -> FitDescription:
    """Describe a fit, in one pass over the maps.

    Parameters
    ----------
    model : fitted CorticalFactorization.
    cohort : the Cohort, or one on disk.
    adjusted : the cohort as it was fitted, if something was taken out of its maps.
    scans : which scans were fitted and belong together; None if rows are people.
    table : loadings of all scans, if some were not fitted.
    folder : where a selection of the number of components may lie, which is shown with the fit.
    timing : stage of the fit → seconds.
    warnings : warnings of the fit.
    report : called with the fraction of the maps that is done.
    """
    provenance = provenance_of(model, cohort, warnings)
    if scans is not None and scans.record:
        provenance["scans"] = {**scans.record, "summary": scans.sentence}
    diagnostics = diagnose(
        model,
        cohort if adjusted is None else adjusted,
        groups=None if scans is None else scans.groups,
        timing=timing,
        warnings=warnings,
        report=report,
    )
    people = None
    if scans is not None:
        people = people_of(cohort) if table is None else scans.people
    # Other results in the folder are about an earlier fit.
    choice = None if folder is None else read_choice(Path(folder))
    # Surfaces are trusted only if the tree was just read; a store may name any file.
    surfaces = cohort.provenance.get("surfaces", ()) if isinstance(cohort, Cohort) else ()
    return FitDescription.of(
        model,
        diagnostics,
        mean_of=surfaces,
        provenance=provenance,
        methods=methods_text(model, cohort, scans),
        participants=cohort.participants,
        people=people,
        table=table,
        selection=SelectionFiles(choice),
    )


def read_fit(
    folder: str | Path, surfaces: Surfaces | None = None, atlas: Sequence[str | Path] | None = None
) -> FitDescription:
    """Return the description of a fit from its folder, which needs the model and diagnostics."""
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is not a folder; it should be one that icofactor fit wrote"
        )
    if not (folder / MODEL).exists():
        raise FileNotFoundError(
            f"{folder / MODEL}: no such file; give a folder that icofactor fit wrote"
        )
    with reading(folder):
        model = load_model(folder / MODEL)
        diagnostics = load_diagnostics(folder / DIAGNOSTICS)
        problem = _difference(model, diagnostics)
        if problem is not None:
            problem = f"{problem}; {MODEL} in this folder is from another fit"
            raise FileError(folder / DIAGNOSTICS, problem)
        n_components = len(model.components_)
        measures = _separate_measures(model)
        attributes: dict[str, Any] = {
            "provenance": read_record(folder / PROVENANCE),
            "methods": read_methods(folder / METHODS),
            "selection": read_selection_files(folder, model, diagnostics.subjects),
            "associations": read_association_files(folder, n_components, measures),
            "latent": read_latent_files(folder, n_components, measures),
            "norm": read_norm_files(folder, n_components, measures),
        }
    # Maps on meshes without surfaces of their own were drawn on these.
    mean_surfaces = sorted(folder.glob(f"hemi-?_*_desc-{OWN}_{SURFACE}"))
    return FitDescription.of(model, diagnostics, surfaces, atlas, mean_surfaces, **attributes)


def _separate_measures(model: Any) -> tuple[str, ...]:
    """Return the measures that have loadings of their own, as with shared maps."""
    measures = model.measures_
    if measures is None or measures.share != "maps" or measures.n == 1:
        return ()
    return tuple(measures.names)


def read_methods(path: Path) -> str:
    """Return the methods paragraph; "" if there is no file."""
    if not path.is_file():
        return ""
    with naming(path, "text"):
        return read_text(path, _MAX_METHODS)


def _difference(model: Any, diagnostics: Diagnostics) -> str | None:
    """Say how diagnostics differ from a model; None if both are of the same size."""
    n_sites = len(diagnostics.median)
    shape = diagnostics.loadings.shape
    if shape == model.loadings_.shape and n_sites == model.sites_.n:
        return None
    return f"is of {shape[0]} subjects and {shape[1]} components on {n_sites} sites"
