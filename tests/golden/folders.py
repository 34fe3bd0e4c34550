"""Golden cases: from files to the folder of a fit, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pandas as pd

from golden.adapter import component_maps, result_table, run_command
from golden.figures import Exactly, Factors, Figure, Values
from golden.inputs import (
    N_COMPONENTS,
    SUBJECTS,
    both_maps,
    coordinates,
    generator,
    left_maps,
    medial_wall,
    people,
    regional_maps,
    true_loadings,
)
from helpers.trees import cifti_files, freesurfer_tree, gifti_files, hemispheres, write_npz

MESH = "fsaverage4"
FIT = ("--n-components", N_COMPONENTS, "--no-figures", "--quiet")


def participants_file(folder: Path) -> Path:
    """Write the table of participants."""
    path = folder / "participants.tsv"
    pd.DataFrame({"participant_id": SUBJECTS, **people()}).to_csv(path, sep="\t", index=False)
    return path


def figures_of_folder(folder: Path, with_maps: bool = True) -> dict[str, Figure]:
    """Return numbers of the files that a fit wrote."""
    loadings = result_table(folder, "loadings")
    components = result_table(folder, "components")
    subjects = result_table(folder, "subjects")
    values = loadings.filter(like="component").to_numpy()
    figures: dict[str, Figure] = {
        "people": Exactly(loadings["participant_id"].tolist()),
        "shares": Values(np.sort(components["variance_alone"])),
        "unique shares": Values(np.sort(components["variance_unique"])),
        "extent": Values(np.sort(components["extent"]), 1e-3),
        "residual of each person": Values(subjects["residual"]),
        "explained of each person": Values(subjects["explained_variance"]),
    }
    if with_maps:
        figures["factors"] = Factors(component_maps(folder), values)
    else:
        figures["loadings"] = Values(np.sort(values, axis=1))
    return figures


def freesurfer(folder: Path) -> dict[str, Figure]:
    """Fit a SUBJECTS_DIR with a table of participants; the page compares loadings with it."""
    maps = hemispheres(both_maps(MESH).astype(np.float32))
    tree = freesurfer_tree(folder / "subjects", SUBJECTS, maps, target=MESH)
    words = ("--measure", "thickness", "--smoothing", 10, "--target", MESH)
    table = participants_file(folder)
    out = folder / "out"
    run_command("fit", tree, *words, "--participants", table, "-o", out, *FIT)
    similarity = result_table(out, "similarity")
    return {
        **figures_of_folder(out),
        "correlations with age": Values(np.sort(result_table(out, "correlations")["value"])),
        "medians of groups": Values(np.sort(result_table(out, "groups")["median"])),
        "correlations of maps": Values(np.sort(similarity["correlation_of_maps"])),
        "overlap of maps": Values(np.sort(similarity["overlap"]), 1e-3),
    }


def gifti(folder: Path) -> dict[str, Figure]:
    """Fit GIFTI files with a covariate, a scanner to harmonize and people to leave out; then new people."""
    maps = hemispheres(both_maps(MESH).astype(np.float32))
    files = gifti_files(folder / "files", SUBJECTS, maps)
    table = participants_file(folder)
    out = folder / "out"
    adjust = ("--harmonize", "site", "--covariates", "age", "--participants", table)
    run_command("fit", files, "--exclude", ",".join(SUBJECTS[20:]), *adjust, "-o", out, *FIT)
    new = folder / "new.tsv"
    everyone = ("--participants", table, "-o", new, "--quiet")
    run_command("transform", out, files, *everyone)
    loadings = pd.read_csv(new, sep="\t").filter(like="component").to_numpy()
    return {
        **figures_of_folder(out),
        "loadings of all by transform": Values(np.sort(loadings, axis=1)),
    }


def cifti(folder: Path) -> dict[str, Figure]:
    """Fit dscalar files on fs_LR, which lack the medial wall."""
    points = coordinates("fsLR32k")
    cortex = ~medial_wall("fsLR32k")
    loadings = true_loadings()[:12]
    sides = {
        "left": regional_maps(points, loadings[:, :2], 11).astype(np.float32),
        "right": regional_maps(points, loadings[:, 2:], 12).astype(np.float32),
    }
    files = cifti_files(folder / "files", SUBJECTS[:12], sides, {"left": cortex, "right": cortex})
    out = folder / "out"
    run_command("fit", files, "-o", out, *FIT)
    dscalar = nibabel.load(next(out.glob("*_components.dscalar.nii")))
    return {
        **figures_of_folder(out),
        "shape of the dscalar": Exactly(list(dscalar.shape)),
        "norms of the dscalar": Values(np.sort(np.linalg.norm(dscalar.get_fdata(), axis=1))),
    }


def parcels(folder: Path) -> dict[str, Figure]:
    """Fit a table with one column per region, and the atlas of the regions."""
    n_regions = 8
    random = generator(13)
    points = coordinates(MESH)
    names = ["unknown", *(f"region{number}" for number in range(1, n_regions + 1))]
    files = []
    columns: dict[str, object] = {"SubjID": SUBJECTS}
    values = 2.5 + 0.1 * random.standard_normal((len(SUBJECTS), 2 * n_regions))
    values += true_loadings() @ np.repeat(np.eye(N_COMPONENTS), 4, axis=1) * 0.3
    for side, letter in enumerate("LR"):
        seeds = random.standard_normal((n_regions, 3))
        labels = 1 + np.argmax(points @ seeds.T / np.linalg.norm(seeds, axis=1), axis=1)
        labels[medial_wall(MESH)] = 0
        colours = np.column_stack(
            [random.randint(0, 255, (n_regions + 1, 3)), np.zeros((n_regions + 1, 2), int)]
        )
        path = folder / f"{letter.lower()}h.toy.annot"
        nibabel.freesurfer.write_annot(path, labels, colours, names, fill_ctab=True)
        files.append(path)
        for number, name in enumerate(names[1:]):
            columns[f"{letter}_{name}_thickavg"] = values[:, side * n_regions + number]
    table = folder / "thickness.csv"
    pd.DataFrame(columns).to_csv(table, index=False)
    out = folder / "out"
    run_command("fit", table, "--parcels", *files, "-o", out, *FIT)
    return figures_of_folder(out, with_maps=False)


def store(folder: Path) -> dict[str, Figure]:
    """Prepare a store from an npz file, append people, fit it, choose a number, and associate."""
    maps = {"left": left_maps(MESH).astype(np.float32)}
    first = write_npz(folder / "first.npz", SUBJECTS[:16], {"left": maps["left"][:16]})
    second = write_npz(folder / "second.npz", SUBJECTS[16:], {"left": maps["left"][16:]})
    path = folder / "maps.store"
    side = ("--hemisphere", "left", "--mesh", MESH, "--quiet")
    run_command("prepare", first, "-o", path, "--limit-outliers", *side)
    run_command("prepare", second, "-o", path, "--limit-outliers", "--append", *side)
    out = folder / "out"
    table = participants_file(folder)
    run_command("fit", path, "-o", out, "--site-weights", "area", *FIT)
    words = ("--formula", "age + group", "--participants", table, "--permutations", 199, "--quiet")
    run_command("associate", out, *words)
    associations = pd.read_csv(out / "associations.tsv", sep="\t")
    return {
        **figures_of_folder(out),
        "statistics": Values(np.sort(associations["value"])),
        "p by theory": Values(np.sort(associations["p_theory"]), 1e-3),
    }


CASES: dict[str, Callable[..., dict[str, Figure]]] = {
    "folder of FreeSurfer": freesurfer,
    "folder of GIFTI": gifti,
    "folder of CIFTI": cifti,
    "folder of parcels": parcels,
    "folder of a store": store,
}
