"""What is known about a fit: one object, complete before anything is drawn or written."""

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
from icofactor.errors import ArgumentError, FileError, Phrase
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

SURFACE = "midthickness.surf.gii"
DIAGNOSTICS, PROVENANCE, METHODS = "diagnostics.npz", "provenance.json", "methods.md"


@dataclass(frozen=True, eq=False)
class ScanTable:
    """Loadings of all scans, those that were not fitted among them, and what is known of them, one
    row each.
    """

    loadings: np.ndarray
    participants: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class FitDescription:
    """All that a fit leaves behind; folder, page and figures are made from it alone.

    Attributes
    ----------
    model : fitted CorticalFactorization.
    diagnostics : what was computed about the fit; its parcellation is the one of all files, page
        and figures.
    cortex : what maps are drawn on.
    provenance : how the fit came about; None when unknown.
    methods : the methods paragraph, in Markdown; "" when there is none.
    participants : column → one value per subject; empty when the description was read from a
        folder.
    selection : what `icofactor select` found.
    associations, latent, norm : what `icofactor associate` found: terms, latent variables,
        W-scores; None where it
        was not asked for them.
    regions : hemisphere → regions of an atlas on the vertices; None without an atlas.
    people : who the rows of the tables are; None when the description was read from a folder.
    table : loadings of all scans where some were not fitted; else None.
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
            raise ArgumentError(
                "diagnostics", Phrase(f"one that {problem}"), "of the same fit as {model}"
            )
        for name, column in self.participants.items():
            if np.shape(column) != (len(self.subjects),):
                found = Phrase(f"shape {np.shape(column)} for {len(self.subjects)} subjects")
                raise ArgumentError(f"participants[{name!r}]", found, "one value per subject")

    @classmethod
    def of(
        cls,
        model: Any,
        diagnostics: Diagnostics,
        surfaces: Surfaces | None = None,
        atlas: Sequence[str | Path] | None = None,
        mean_of: Sequence[str | Path] = (),
        **known: Any,
    ) -> FitDescription:
        """A description of a fit, with the surfaces and the atlas read; `known` are further
        attributes.

        Parameters
        ----------
        surfaces : surface files or folders, for meshes other than fsaverage.
        atlas : one .annot or .label.gii per hemisphere, or one .dlabel.nii, to name regions.
        mean_of : surfaces of subjects, whose mean is drawn where `surfaces` are not given.
        """
        sites = model.sites_.of_measure()
        cortex = cortex_or_reason(sites, model.hemi_, surfaces, mean_of)
        if sites.regions is not None and cortex.hemispheres and not atlas:
            halves = np.split(sites.regions.labels, sites.n_hemispheres)
            names = dict(enumerate(sites.regions.names))
            known["regions"] = {
                half.side: (own, names)
                for half, own in zip(cortex.hemispheres, halves, strict=True)
            }
        if atlas and cortex.hemispheres:
            known["regions"] = read_regions(atlas, sites.surface, model.hemi_)
        return cls(model, diagnostics, cortex, **known)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names, in the order of the loadings."""
        return self.diagnostics.subjects

    def by_measure(self) -> list[tuple[str, FitDescription]]:
        """Measure, and the fit with its maps alone, in its units; one without name where all share
        maps.
        """
        model, d, measures = self.model, self.diagnostics, self.model.measures_
        if measures is None or measures.share == "maps":
            return [("", self)]
        found, on_sites = [], ("median", "deviation", "explained_map", "parcellation", "depth")
        maps = measures.maps(model.components_)
        for number, name in enumerate(measures.names):
            one, mine = copy(model), model.sites_.measure == number
            one.sites_, one.components_, one.measures_ = (
                model.sites_.of_measure(number),
                maps[name],
                None,
            )
            one.mask_ = (
                None if model.mask_ is None or model.mask_[mine].all() else model.mask_[mine]
            )
            own: dict[str, Any] = {part: getattr(d, part)[mine] for part in on_sites}
            diagnostics = replace(d, **own, modality=name, units=measures.units[number])
            found.append((name, replace(self, model=one, diagnostics=diagnostics)))
        return found

    def with_maps(self, maps: np.ndarray) -> FitDescription:
        """The same fit with its maps in other units."""
        one = copy(self.model)
        one.components_ = maps
        return replace(self, model=one)

    @property
    def atlas_names(self) -> list[str]:
        """One per component: "bilateral insula (12.3 %)" where an atlas names it (q ≤ 0.05), else
        "".
        """
        return certain_names(self.selection.overlap, len(self.diagnostics.alone))

    @property
    def titles(self) -> list[str]:
        """One per component, for pages and figures: "Component 1: bilateral insula (12.3 %)" or
        "Component 1".
        """
        return [
            f"Component {j}{': ' * bool(name)}{name}" for j, name in enumerate(self.atlas_names, 1)
        ]

    @property
    def labels(self) -> list[str]:
        """The same for files: "component01 bilateral insula (12.3 %)" or "component01"."""
        numbers = numbered("component", len(self.diagnostics.alone))
        return [
            f"{number} {name}".strip()
            for number, name in zip(numbers, self.atlas_names, strict=True)
        ]

    @property
    def mesh_name(self) -> str:
        """Of the maps."""
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
    """Everything about a fit, in one pass over the maps.

    Parameters
    ----------
    model : fitted CorticalFactorization.
    cohort : the Cohort, or one on disk.
    adjusted : the same cohort as it was fitted, when something was taken out of its maps.
    scans : which scans were fitted and belong together; None where rows are people.
    table : loadings of all scans, where some were not fitted.
    folder : where a selection of the number of components may lie, which is shown with the fit.
    timing : stage of the fit → seconds.
    warnings : what the fit warned of.
    report : called with the fraction of the maps that was looked at.
    """
    data = cohort if adjusted is None else adjusted
    # what else may lie in the folder is about an earlier fit
    choice = None if folder is None else read_choice(Path(folder))
    provenance, groups = (
        provenance_of(model, cohort, warnings),
        None if scans is None else scans.groups,
    )
    if scans is not None and scans.record:
        provenance["scans"] = {**scans.record, "summary": scans.sentence}
    return FitDescription.of(
        model,
        diagnose(model, data, groups=groups, timing=timing, warnings=warnings, report=report),
        # as just found by reading a tree; what a store names may be anything
        mean_of=cohort.provenance.get("surfaces", ()) if isinstance(cohort, Cohort) else (),
        provenance=provenance,
        methods=methods_text(model, cohort, scans),
        participants=cohort.participants,
        people=None if scans is None else scans.people if table is not None else people_of(cohort),
        table=table,
        selection=SelectionFiles(choice),
    )


def read_fit(
    folder: str | Path, surfaces: Surfaces | None = None, atlas: Sequence[str | Path] | None = None
) -> FitDescription:
    """The description of a fit from its folder, for which model.zip and diagnostics.npz are needed."""
    place = Path(folder)
    if not place.is_dir():
        raise NotADirectoryError(
            f"{place} is not a folder; it should be one that icofactor fit wrote"
        )
    if not (place / MODEL).exists():
        raise FileNotFoundError(
            f"{place / MODEL}: no such file; give a folder that icofactor fit wrote"
        )
    with reading(place):
        model, diagnostics = load_model(place / MODEL), load_diagnostics(place / DIAGNOSTICS)
        problem = _difference(model, diagnostics)
        if problem is not None:
            raise FileError(
                place / DIAGNOSTICS, f"{problem}; {MODEL} in this folder is from another fit"
            )
        known: dict[str, Any] = {
            "provenance": read_record(place / PROVENANCE),
            "methods": read_methods(place / METHODS),
            "selection": read_selection_files(place, model, diagnostics.subjects),
            **_tests_beside(place, model),
        }
    return FitDescription.of(
        model,
        diagnostics,
        surfaces,
        atlas,
        sorted(place.glob(f"hemi-?_*_desc-{OWN}_{SURFACE}")),
        **known,
    )


def _tests_beside(folder: Path, model: Any) -> dict[str, Any]:
    """What `icofactor associate` left beside a fit: of shared maps, about the loadings of every
    measure.
    """
    joined = (
        model.measures_ is not None and model.measures_.share == "maps" and model.measures_.n > 1
    )
    measures = model.measures_.names if joined else ()
    readers = {
        "associations": read_association_files,
        "latent": read_latent_files,
        "norm": read_norm_files,
    }
    return {name: read(folder, len(model.components_), measures) for name, read in readers.items()}


def read_methods(path: Path) -> str:
    """A text; "" where there is no file."""
    if not path.is_file():
        return ""
    with naming(path, "text"):
        return read_text(path, 2**20)


def _difference(model: Any, d: Diagnostics) -> str | None:
    """In what diagnostics are not those of a model."""
    if d.loadings.shape == model.loadings_.shape and len(d.median) == model.sites_.n:
        return None
    return f"is of {d.loadings.shape[0]} subjects and {d.loadings.shape[1]} components on {len(d.median)} sites"
