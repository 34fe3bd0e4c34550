"""Layouts of folders: what the tools of the field write, declared one by one.

To add a layout, add a `Layout` to `LAYOUTS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import Path

from icofactor.cohort.find import folders_in, names_in
from icofactor.cohort.find.bids import describe_bids
from icofactor.cohort.names import mesh_of

_SIDES = {"lh": "left", "rh": "right", "L": "left", "R": "right", "left": "left", "right": "right"}


@dataclass(frozen=True)
class Layout:
    """How a tool arranges the maps of many subjects in folders.

    Attributes
    ----------
    name : as in "found a SUBJECTS_DIR".
    folders : where a subject's files are, as globs relative to its folder.
    patterns : regular expressions of the names of maps. Their groups may be hemisphere, measure,
        smoothing, target, kind and subject. With `subject`, a folder holds the files of many.
        Empty for names of BIDS.
    templates : regular expression of the names of folders beside those of subjects.
    marker : a folder in every subject's folder. If empty, files that match tell the layout.
    options : arguments of `load_cohort` that choose files here.
    default_measure : what is read if the caller does not say.
    names : measure → its names in files. A measure that is not listed has the names of `forms`.
    forms : names of a measure in files.
    ranked : whether names are in order of preference; otherwise the caller chooses one.
    kinds : kinds of files in order of preference; if empty, the caller chooses one.
    default_target : mesh that is read if the caller does not say.
    own_surfaces : regular expression of names of maps on the subjects' own surfaces.
    remedy : what to do if there are only those.
    """

    name: str
    folders: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    templates: str = ""
    marker: str = ""
    options: frozenset[str] = frozenset({"target"})
    default_measure: str | None = None
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    forms: tuple[str, ...] = ("{}",)
    ranked: bool = False
    kinds: tuple[str, ...] = ()
    default_target: str | None = None
    own_surfaces: str = ""
    remedy: str = ""

    @property
    def holds_many(self) -> bool:
        """Whether subjects are in the names of files, not in those of folders."""
        return any("(?P<subject>" in pattern for pattern in self.patterns)

    def names_of(self, measure: str) -> list[str]:
        """Return the names of a measure in files, in lower case."""
        # Users write measures in any case.
        names = self.names.get(measure.lower())
        if names is None:
            names = tuple(form.format(measure) for form in self.forms)
        return [name.lower() for name in names]

    def entries_in(self, folder: Path) -> Iterator[tuple[Path, str]]:
        """Yield folder and name of everything that lies where a subject's maps may be."""
        for pattern in self.folders:
            folders = sorted(folder.glob(pattern)) if has_magic(pattern) else [folder / pattern]
            for directory in folders:
                for name in names_in(directory):
                    yield directory, name

    def describe(
        self,
        name: str,
        tables: bool = False,
    ) -> dict[str, str | None] | None:
        """Return what a file's name says of it, or None if it is not a map of this layout."""
        if not self.patterns:
            return describe_bids(name, tables)
        for pattern in self.patterns:
            match = re.fullmatch(pattern, name)
            if match is not None:
                groups = match.groupdict()
                return {
                    **groups,
                    "hemisphere": _SIDES.get(groups.get("hemisphere") or ""),
                    "target": groups.get("target") or mesh_of(name) or "",
                    "kind": groups.get("kind") or "",
                }
        return None

    def on_own_surface(
        self,
        name: str,
        measure: str | None = None,
    ) -> bool:
        """Whether a file is a map on the subject's own surface."""
        match = re.fullmatch(self.own_surfaces, name) if self.own_surfaces else None
        return match is not None and measure in (None, match.groupdict().get("measure", measure))

    def is_subject(self, folder: Path) -> bool:
        """Whether a folder has the files of a subject."""
        if not self.patterns:
            return folder.absolute().name.startswith("sub-")
        if self.marker:
            # BIDS derivatives also have folders called surf.
            names = names_in(folder / self.marker)
            is_bids = any(name.startswith("sub-") for name in names)
            return (folder / self.marker).is_dir() and not is_bids
        # Without a marker, the files themselves tell the layout.
        names = [name for _, name in self.entries_in(folder)]
        maps = [str(groups) for name in names if (groups := self.describe(name))]
        if self.holds_many:
            return bool(maps) or any(map(self.on_own_surface, names))
        # Two maps of one kind and hemisphere are of two subjects.
        return len(maps) == len(set(maps)) > 0

    def subject_folders(self, root: Path) -> list[Path] | None:
        """Return the subjects' folders that a folder holds, or is; None in another layout."""
        folders = [root] if self.is_subject(root) else []
        # A folder may be a subject, or hold subjects.
        if not folders and not self.holds_many:
            folders = [folder for folder in folders_in(root) if self.is_subject(folder)]
        if not folders:
            return None
        is_template = re.compile(self.templates).fullmatch
        return [folder for folder in folders if not is_template(folder.absolute().name)]


HCP = Layout(
    name="an HCP tree",
    folders=("MNINonLinear/fsaverage_LR32k", "MNINonLinear/fsaverage_LR59k", "MNINonLinear"),
    patterns=(
        r"[^.]+\.(?:(?P<hemisphere>[LR])\.)?(?P<measure>[^.]+)\.(?P<target>\d+k)_fs_LR"
        r"\.(?P<kind>dscalar\.nii|shape\.gii)",
    ),
    marker="MNINonLinear",
    # MSMAll is the better registration; BC corrects for the transmit field.
    names={
        "myelin": ("MyelinMap_BC_MSMAll", "MyelinMap_BC", "MyelinMap_MSMAll", "MyelinMap"),
        "curv": ("curvature_MSMAll", "curvature"),
    },
    forms=("{}_MSMAll", "{}"),
    ranked=True,
    kinds=("dscalar.nii", "shape.gii"),
    default_target="32k",
)
CAT12 = Layout(
    name="CAT12's surfaces",
    folders=("", "surf", "*/surf", "sub-*/ses-*", "sub-*/ses-*/anat", "sub-*/ses-*/surf"),
    patterns=(
        r"(?:s(?P<smoothing>\d+(?:\.\d+)?)\.)?(?P<hemisphere>(?P<kind>mesh)|lh|rh)"
        r"\.(?P<measure>[^.]+)\.resampled(?:_32k)?\.(?P<subject>.+)\.gii",
    ),
    options=frozenset({"target", "smoothing", "entities"}),
    default_measure="thickness",
    kinds=("mesh", ""),
    own_surfaces=r"[lr]h\.central\..+\.gii",
    remedy="run CAT12's Surface Tools, Resample and Smooth Surface Data, first",
)
CIVET = Layout(
    name="CIVET's folders",
    folders=("thickness", "surfaces"),
    patterns=(
        r"(?:.+_)?native_rms_rsl_(?P<measure>t[a-z]+)_(?P<smoothing>\d+(?:\.\d+)?)mm"
        r"_(?P<hemisphere>left|right)\.txt",
        r"(?:.+_)?(?:mid_)?surface_rsl_(?P<hemisphere>left|right)_native"
        r"_(?P<measure>area|volume)_(?P<smoothing>\d+(?:\.\d+)?)mm\.txt",
    ),
    options=frozenset({"target", "smoothing"}),
    default_measure="thickness",
    names={"thickness": ("tlink", "tlaplace", "tfs")},
)
FREESURFER = Layout(
    name="a SUBJECTS_DIR",
    folders=("surf",),
    # The resampled maps of w-g.pct.mgh keep that ending within their names.
    patterns=(
        r"(?P<hemisphere>[lr]h)\.(?P<measure>.+?)(?:\.mgh)?"
        r"(?:\.(?P<kind>fwhm)(?P<smoothing>\d+))?\.(?P<target>[^.]+)\.mg[hz]",
    ),
    templates=r"fsaverage.*|.*_average|cvs_avg.*|[lr]h\.EC_average",
    marker="surf",
    options=frozenset({"target", "smoothing", "stream"}),
    default_measure="thickness",
    # recon-all -qcache writes fwhm0 beside the same map that is not cut to the cortex.
    kinds=("fwhm", ""),
    own_surfaces=r"[lr]h\.(?P<measure>[^.]+)",
    remedy="resample them to fsaverage with recon-all -qcache or mris_preproc",
)
BIDS = Layout(
    name="BIDS derivatives",
    folders=tuple(
        f"{session}{folder}"
        for session in ("", "ses-*/")
        for folder in ("", "anat", "func", "surf")
    ),
    options=frozenset({"target", "entities"}),
    remedy="run fMRIPrep with --output-spaces fsaverage5",
)
# In this order: the first that a folder has is taken. FastSurfer writes FreeSurfer's layout.
LAYOUTS = [HCP, CAT12, CIVET, FREESURFER, BIDS]
