"""The files of one layout as a table, and the choice of one kind of map for all subjects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cohort.find import COLUMNS, MISSING, is_listed, keep, size_of
from icofactor.cohort.find.bids import has_entities, names_atlas, session_of, targets_of
from icofactor.cohort.find.layouts import CIVET, Layout
from icofactor.cohort.names import mesh_of, subjects_of
from icofactor.cohort.people import choose_stream
from icofactor.cohort.problems import Journal
from icofactor.cohort.request import Request
from icofactor.errors import CohortError, plural
from icofactor.sphere.names import SIDES

if TYPE_CHECKING:
    import pandas as pd

# What tells one kind of map from another.
_CHOICE = ["measure", "smoothing", "target", "kind"]


def find_in_layout(
    layout: Layout,
    roots: dict[Path, list[Path]],
    request: Request,
    journal: Journal,
) -> pd.DataFrame:
    """Return the table of the files to read, one kind of map for all subjects.

    Parameters
    ----------
    roots : folder of the layout → folders of its subjects.
    """
    first = CohortError.place(next(iter(roots)))
    root = first if len(roots) == 1 else f"{first} and {len(roots) - 1} more"
    folders = list(dict.fromkeys(folder for listed in roots.values() for folder in listed))
    if not folders:
        raise CohortError(root, "contains only templates, no subjects")
    # Folders of other streams are people twice.
    if "stream" in layout.options:
        folders = _of_stream(folders, request.stream, root)
    files = _list_files(layout, folders, request)
    files, label = _choose(
        files,
        layout,
        request,
        root,
        folders,
    )
    journal.note(f"{root}: {layout.name}, {label}")
    if layout.holds_many:
        paths = [path.absolute() for path in files["path"]]
        files["subject"] = subjects_of(paths, list(files["subject"]), request.listed)
    else:
        files = _with_missing(files, folders, request, label)
    files["mesh"] = "CIVET" if layout is CIVET else files["mesh"]
    return files.reset_index()[list(COLUMNS)]


def _of_stream(
    folders: Sequence[Path],
    stream: str | None,
    root: str,
) -> list[Path]:
    """Return the folders of one of FreeSurfer's streams."""
    by_name = {folder.absolute().name: folder for folder in folders}
    templates = [name for name, folder in by_name.items() if (folder / "base-tps").exists()]
    names = choose_stream(list(by_name), stream, root, templates)
    return [by_name[name] for name in names]


def _list_files(
    layout: Layout,
    folders: Iterable[Path],
    request: Request,
) -> pd.DataFrame:
    """Return a table of all maps of a layout."""
    import pandas as pd

    tables = request.tables or names_atlas(dict(request.entities))
    rows = []
    for folder in folders:
        for directory, name in layout.entries_in(folder):
            described = layout.describe(name, tables)
            if described is None:
                continue
            path = directory / name
            if not is_listed(path):
                continue
            rows.append(
                {
                    "subject": folder.absolute().name,
                    **described,
                    "smoothing": float(described.get("smoothing") or 0),
                    "session": session_of(path),
                    "mesh": mesh_of(path.name),
                    "folder": folder,
                    "path": path,
                    "size": size_of(path),
                }
            )
    columns = [*COLUMNS, "smoothing", "target", "kind", "folder"]
    return pd.DataFrame(rows, columns=columns, dtype=object)


def _choose(
    files: pd.DataFrame,
    layout: Layout,
    request: Request,
    root: str,
    folders: Sequence[Path],
) -> tuple[pd.DataFrame, str]:
    """Return the files of the requested kind of map, or of the only kind, and its description."""
    measures = sorted(set(files["measure"]))
    only = measures[0] if len(measures) == 1 else None
    measure = request.measure or layout.default_measure or only
    names = layout.names_of(measure or "")
    of_measure = keep(files, (name.lower() in names for name in files["measure"]))
    requested = keep(of_measure, (_is_requested(row, layout, request) for row in _rows(of_measure)))
    # fMRIPrep puts maps on the subjects' own surfaces beside the others.
    resampled = requested[requested["target"] != ""] if len(requested) else requested
    requested = requested if resampled.empty else resampled
    if measure is None:
        listed = ", ".join(measures) or "no surface maps"
        problem = f"choose with --measure (measure=); there are {listed}"
    elif of_measure.empty:
        problem = _no_measure(layout, measure, measures, folders)
    elif requested.empty:
        problem = _nothing_fits(of_measure, layout, request)
    elif all("fsnative" in path.name for path in requested["path"]):
        problem = f"has {measure} on the subjects' own surfaces only; {layout.remedy}"
    else:
        kinds = _preferred_kinds(requested, layout, names)
        problem = _ask(kinds, layout) if len(kinds) > 1 else ""
    if problem:
        raise CohortError(root, problem)
    kind = kinds.iloc[0]
    chosen = requested[(requested[_CHOICE] == kind[_CHOICE]).all(axis=1)]
    return chosen.copy(), _label(kind)


def _ask(
    kinds: pd.DataFrame,
    layout: Layout,
) -> str:
    """Say which options choose between kinds of maps."""
    varying = [name for name in _CHOICE if kinds[name].nunique() > 1]
    options = [name for name in varying if name == "measure" or name in layout.options]
    if "kind" in varying and "entities" in layout.options:
        options += ["target", "entities"]
    named = " or ".join(f"--{name} ({name}=)" for name in dict.fromkeys(options))
    return f"choose with {named}; there are {_listed(kinds)}"


def _rows(files: pd.DataFrame) -> Iterable[Any]:
    return files.itertuples(index=False)


def _is_requested(
    row: Any,
    layout: Layout,
    request: Request,
) -> bool:
    """Whether a file has the requested smoothing, mesh, hemisphere and entities."""
    # The layout of the HCP has a standard density.
    target = request.target or layout.default_target
    if target is not None:
        # Users write 32k, fsLR32k and fs_LR_32k.
        density = target.lower().replace("fs_lr", "").replace("fslr", "").strip("_-")
        targets = targets_of(row.path.name) | {row.target}
        if targets.isdisjoint({target, density or target}):
            return False
    if request.smoothing is not None and request.smoothing != row.smoothing:
        return False
    if row.hemisphere is not None and row.hemisphere not in request.sides:
        return False
    return has_entities(row.path.name, dict(request.entities))


def _preferred_kinds(
    files: pd.DataFrame,
    layout: Layout,
    names: Sequence[str],
) -> pd.DataFrame:
    """Return the kinds of maps to choose from, with the numbers of their subjects.

    Of kinds between which a layout has an order of preference, only the one that most subjects
    have is listed; the first in order, if equal.
    """
    subject = "path" if layout.holds_many else "subject"
    counts = files.groupby(_CHOICE)[subject].nunique().reset_index(name="n_subjects")
    chosen_by_caller = ["smoothing", "target"]
    if not layout.ranked:
        chosen_by_caller.append("measure")
    if not layout.kinds:
        chosen_by_caller.append("kind")
    kinds = list(layout.kinds)
    ranked = counts.assign(
        kind_rank=[kinds.index(kind) if kind in kinds else len(kinds) for kind in counts["kind"]],
        name_rank=[names.index(measure.lower()) for measure in counts["measure"]],
    ).sort_values(
        ["n_subjects", "kind_rank", "name_rank"],
        ascending=[False, True, True],
    )
    return ranked.drop_duplicates(chosen_by_caller).sort_values(_CHOICE)


def _label(kind: Any) -> str:
    """Describe a kind of map, as in "thickness, fwhm 10, fsaverage5"."""
    is_smoothed = kind.smoothing or kind.kind == "fwhm"
    words = [kind.measure, f"fwhm {kind.smoothing:g}" if is_smoothed else "", kind.target]
    if kind.kind not in ("fwhm", "mesh"):
        words.append(kind.kind)
    return ", ".join(word for word in words if word)


def _listed(kinds: pd.DataFrame) -> str:
    """List kinds of maps with the numbers of their subjects."""
    return "; ".join(
        f"{_label(kind)} ({plural(kind.n_subjects, 'subject')})" for kind in _rows(kinds)
    )


def _no_measure(
    layout: Layout,
    measure: str,
    measures: Sequence[str],
    folders: Sequence[Path],
) -> str:
    """Say that no subject has a measure, what there is, and what to do."""
    # Series are there, from which the measure can be computed.
    if measure.lower() in ("reho", "alff") and "bold" in measures:
        remedy = f"icofactor prepare {measure.lower()} computes it from the time series"
        return f"no subject has {measure}; {remedy}"
    names = {name for folder in folders for _, name in layout.entries_in(folder)}
    if any(layout.on_own_surface(name, measure) for name in names):
        return f"has {measure} on the subjects' own surfaces only; {layout.remedy}"
    listed = ", ".join(measures) or "no surface maps"
    # fMRIPrep writes series on the surface only if asked to.
    hint = f". For series on the surface {layout.remedy}" if measure == "bold" else ""
    return f"no subject has {measure}; there are {listed}: choose with --measure (measure=){hint}"


def _nothing_fits(
    files: pd.DataFrame,
    layout: Layout,
    request: Request,
) -> str:
    """Say which options no file meets, and what there is."""
    options = [
        f"--{name} {value} ({name}={value!r})"
        for name in ("smoothing", "target", "hemisphere")
        if (value := getattr(request, name)) is not None
    ]
    options += [f"--entities {key}={value} (entities=)" for key, value in request.entities.items()]
    kinds = _preferred_kinds(files, layout, sorted({name.lower() for name in files["measure"]}))
    text = f"nothing matches {', '.join(options)}; there are {_listed(kinds)}"
    if request.target in ("fsaverage5", "fsaverage6") and "fsaverage" in set(files["target"]):
        text += f". To resample: icofactor prepare ... --resample-to {request.target}"
    return text


def _with_missing(
    files: pd.DataFrame,
    folders: Sequence[Path],
    request: Request,
    label: str,
) -> pd.DataFrame:
    """Add a row for each file that other subjects have and one lacks."""
    import pandas as pd

    # Every subject should have what any other has.
    present = set(zip(files["folder"], files["hemisphere"], strict=True))
    sides = [side for side in (None, *SIDES) if side in set(files["hemisphere"])]
    if request.hemisphere is not None and None not in sides:
        sides = list(request.sides)
    # The file of another subject tells what a missing one should be called.
    examples = {row.hemisphere: row for row in reversed(list(_rows(files)))}
    rows = []
    for folder, side in product(folders, sides):
        if (folder, side) in present:
            continue
        subject = folder.absolute().name
        path: str | Path = f"{folder}: no {side or ''} {label}"
        example = examples.get(side)
        if example is not None:
            relative = str(example.path.relative_to(example.folder))
            path = folder / relative.replace(example.subject, subject)
        rows.append(
            dict.fromkeys(files.columns)
            | {
                "subject": subject,
                "hemisphere": side,
                "path": path,
                "size": MISSING,
                "folder": folder,
            }
        )
    added = pd.DataFrame(rows, columns=files.columns, dtype=object)
    # One subject's files stay together, in the order of the folders.
    order = {folder: number for number, folder in enumerate(folders)}
    files = pd.concat([files, added], ignore_index=True)
    return files.sort_values("folder", key=lambda column: column.map(order), kind="stable")
