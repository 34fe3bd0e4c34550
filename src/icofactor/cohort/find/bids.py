"""Names of BIDS derivatives, as fMRIPrep and XCP-D write them.

E.g. sub-01/func/sub-01_hemi-L_space-fsaverage5_bold.func.gii.
"""

from __future__ import annotations

import re
from pathlib import Path

from icofactor.cohort.names import mesh_of
from icofactor.io.maps import is_map, without_ending

_ENTITY = re.compile(r"([a-z0-9]+)-([0-9A-Za-z+]+)")
_SIDES = {"L": "left", "R": "right"}
# Either names the atlas of a table of regions; XCP-D 0.10 changed from the first to the second.
_ATLAS = ("atlas", "seg")


def entities_of(name: str) -> dict[str, str]:
    """Return the entities of a BIDS name, with its suffix as "suffix"."""
    *pairs, suffix = without_ending(name).split("_")
    matches = filter(None, map(_ENTITY.fullmatch, pairs))
    return {**{match[1]: match[2] for match in matches}, "suffix": suffix}


def has_entities(
    name: str,
    requested: dict[str, str],
) -> bool:
    """Whether a name has all requested entities."""
    return {key: str(value) for key, value in requested.items()}.items() <= entities_of(
        name
    ).items()


def names_atlas(requested: dict[str, str]) -> bool:
    """Whether requested entities choose an atlas, so that tables of regions are meant."""
    return not requested.keys().isdisjoint(_ATLAS)


def session_of(path: Path) -> str | None:
    """Return the session of a BIDS name or folder, or None."""
    if path.name.startswith("sub-") and "ses" in (entities := entities_of(path.name)):
        return entities["ses"]
    # Folders of sessions count for files that do not say theirs.
    folders = [folder for folder in path.parts[:-1] if folder.startswith("ses-")]
    return folders[-1].removeprefix("ses-") if folders else None


def describe_bids(
    name: str,
    tables: bool,
) -> dict[str, str | None] | None:
    """Return what a BIDS name says of a map, or of a table of regions; None for other files.

    Maps on the subject's own surface have an empty target.
    """
    entities = entities_of(name)
    if not (_is_table(name, entities) if tables else is_map(Path(name))):
        return None
    space = entities.get("space", "")
    named = [
        f"{key}-{entities[key]}" for key in ("space", *_ATLAS, "den", "desc") if key in entities
    ]
    file_format = "CIFTI" if name.endswith(".nii") else "table" if tables else "surface"
    measure = entities.get("stat", entities["suffix"])
    # XCP-D names the measure of morphometry in desc.
    if entities["suffix"] == "morph" and "desc" in entities:
        measure = entities["desc"]
    return {
        "hemisphere": _SIDES.get(entities.get("hemi", "")),
        "measure": measure,
        "target": "" if space == "fsnative" else mesh_of(name) or space,
        "kind": "_".join([*named, file_format]),
    }


def _is_table(
    name: str,
    entities: dict[str, str],
) -> bool:
    """Whether a file is a row of regions, and no series, matrix or coverage of regions."""
    # Series and matrices of regions have no row per person.
    is_other = entities["suffix"] in ("timeseries", "relmat") or entities.get("stat") == "coverage"
    return name.endswith((".tsv", ".pscalar.nii")) and names_atlas(entities) and not is_other


def targets_of(name: str) -> set[str]:
    """Return the words by which a file's mesh may be requested."""
    mesh = mesh_of(name) or ""
    entities = entities_of(name)
    space = entities.get("space", "")
    density = entities.get("den", "")
    # Files with 91k grayordinates are on the surfaces with 32k vertices.
    return {mesh, mesh.removeprefix("fsLR"), space, density, f"{space}_den-{density}"} - {""}
