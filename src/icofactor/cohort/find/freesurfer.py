"""A FreeSurfer SUBJECTS_DIR: SUBJECT/surf/lh.thickness.fwhm10.fsaverage5.mgh, as recon-all -qcache
writes them.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from shlex import quote

from icofactor.cohort.find import Found, Source, Wanted, folders_in, names_in
from icofactor.cohort.people import choose_stream
from icofactor.errors import CohortError, counted, literal

_PREFIX = {"left": "lh", "right": "rh"}
_TEMPLATES = re.compile(r"fsaverage.*|.*_average|cvs_avg.*|[lr]h\.EC_average")
_MAP = re.compile(
    r"(?P<hemi>[lr]h)\.(?P<measure>.+?)(?:\.fwhm(?P<fwhm>\d+))?\.(?P<target>[^.]+)\.mg[hz]"
)
_DEFAULT_MEASURE = "thickness"
Variant = tuple[int | None, str]
"""Smoothing in mm (None: none in the name) and target."""


def freesurfer_subjects(root: Path) -> list[Path] | None:
    """The subjects that a folder holds, or is, without templates such as fsaverage; None for any
    other folder.
    """
    alone = (root / "surf").is_dir() and not any(
        name.startswith("sub-") for name in names_in(root / "surf")
    )
    there = (
        [root] if alone else [folder for folder in folders_in(root) if (folder / "surf").is_dir()]
    )
    return (
        [folder for folder in there if not _TEMPLATES.fullmatch(folder.absolute().name)]
        if there
        else None
    )


def find_freesurfer(root: str, subjects: list[Path], wanted: Wanted) -> Found:
    """The maps of all subjects."""
    measure = wanted.measure or _DEFAULT_MEASURE
    if not subjects:
        raise CohortError(root, "contains only templates, no subjects with a surf folder")
    by_name = {folder.absolute().name: folder for folder in subjects}
    bases = [name for name, folder in by_name.items() if (folder / "base-tps").exists()]
    chosen = set(choose_stream(list(by_name), wanted.stream, root, bases))
    subjects = [folder for folder in subjects if folder.absolute().name in chosen]
    files = {folder: _maps_of(folder / "surf", measure, wanted.sides) for folder in subjects}
    variant = _choose(root, subjects, files, measure, wanted)
    found = Found(measure=measure, mesh=variant[1] if variant[1].startswith("fsaverage") else None)
    sides = [
        side for side in wanted.sides if any((side, variant) in there for there in files.values())
    ]
    if wanted.hemisphere is not None:
        sides = list(wanted.sides)
    for folder in subjects:
        subject = folder.absolute().name
        for side in sides:
            path = files[folder].get((side, variant))
            if path is None:
                expected = folder / "surf" / f"{_PREFIX[side]}.{measure}.{_named(variant)}.mgh"
                found.missing.setdefault(subject, []).append(str(expected))
            else:
                found.sources.append(Source(path, subject, side))
    found.notes.append(f"{root}: FreeSurfer subjects, {measure}.{_named(variant)}")
    return found


def _maps_of(surf: Path, measure: str, sides: tuple[str, ...]) -> dict[tuple[str, Variant], Path]:
    """(Hemisphere, variant) → file, for one subject and measure."""
    there = {}
    hemispheres = {_PREFIX[side]: side for side in sides}
    for name in names_in(surf):
        match = _MAP.fullmatch(name)
        # of maps that are MGH files themselves (w-g.pct.mgh) the resampled ones keep that ending
        # within the name
        if (
            match
            and match["hemi"] in hemispheres
            and match["measure"].removesuffix(".mgh") == measure
        ):
            fwhm = None if match["fwhm"] is None else int(match["fwhm"])
            there[hemispheres[match["hemi"]], (fwhm, match["target"])] = surf / name
    return there


def _choose(
    root: str,
    subjects: list[Path],
    files: dict[Path, dict[tuple[str, Variant], Path]],
    measure: str,
    wanted: Wanted,
) -> Variant:
    """The smoothing and target to read: those asked for, or the only ones there are."""
    counts: Counter[Variant] = Counter(
        variant for there in files.values() for variant in {variant for _, variant in there}
    )
    if not counts:
        raise CohortError(
            root, f"no subject has {literal(measure)} on a common mesh{_hint(subjects, measure)}"
        )
    fitting = [variant for variant in counts if _fits(variant, wanted)]
    if wanted.smoothing == 0 and len({target for _, target in fitting}) == 1:
        # -qcache leaves what it smooths beside fwhm0, which is the same but cut to the cortex
        fitting = [variant for variant in fitting if variant[0] == 0] or fitting
    if len(fitting) == 1:
        return fitting[0]
    left = sorted(fitting or counts, key=lambda v: (v[1], -1 if v[0] is None else v[0]))
    listed = ", ".join(f"{measure}.{_named(v)} ({counted(counts[v], 'subject')})" for v in left)
    asked = ", ".join(
        f"{{{name}={value:g}}}" if isinstance(value, int | float) else f"{{{name}={value!r}}}"
        for name, value in (("smoothing", wanted.smoothing), ("target", wanted.target))
        if value is not None
    )
    apart = [
        name
        for at, name in enumerate(("{smoothing}", "{target}"))
        if len({v[at] or 0 for v in left}) > 1
    ]
    what = (
        f"choose with {' and '.join(apart) or '{smoothing}'}"
        if fitting
        else f"nothing matches {asked}"
    )
    remedy = ""
    if (
        not fitting
        and wanted.target in ("fsaverage5", "fsaverage6")
        and "fsaverage" in {target for _, target in left}
    ):
        smoothed = "" if wanted.smoothing is None else f" --smoothing {wanted.smoothing:g}"
        reads = f"{quote(root)} --measure {measure}{smoothed} --target fsaverage -o STORE"
        remedy = f". To resample: icofactor prepare {reads} --resample-to {wanted.target}"
    raise CohortError(root, f"{what}; there are {literal(listed + remedy)}")


def _fits(variant: Variant, wanted: Wanted) -> bool:
    smoothing, target = variant
    if wanted.target is not None and target != wanted.target:
        return False
    return wanted.smoothing is None or wanted.smoothing == (smoothing or 0)


def _named(variant: Variant) -> str:
    smoothing, target = variant
    return target if smoothing is None else f"fwhm{smoothing}.{target}"


def _hint(subjects: list[Path], measure: str) -> str:
    """What there is instead."""
    native, others = 0, set[str]()
    for folder in subjects:
        names = names_in(folder / "surf")
        native += f"lh.{measure}" in names or f"rh.{measure}" in names
        others |= {match["measure"] for name in names if (match := _MAP.fullmatch(name))}
    if native:
        return (
            f"; {native} have it only on their own meshes (surf/lh.{literal(measure)}): "
            "resample it to fsaverage with recon-all -qcache or mris_preproc"
        )
    return (
        f"; there are {literal(', '.join(sorted(others)))}: choose with {{measure}}"
        if others
        else ""
    )
