"""A small atlas on fsaverage3 and tables of its regions, as the tools of the field write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from icofactor.io.freesurfer import write_annot
from icofactor.results.colours import distinct_colours
from icofactor.sphere.sites import Sites

NAMES = (
    "bankssts",
    "cuneus",
    "fusiform",
    "insula",
    "lingual",
    "precuneus",
    "pericalcarine",
    "temporalpole",
)
N = 2 * len(NAMES)


def toy_labels(seed: int = 0) -> np.ndarray:
    """(642,) 1 to 8 on fsaverage3, 0 on a medial wall."""
    points = Sites.named("fsaverage3").coordinates
    seeds = np.random.default_rng(seed).choice(
        np.flatnonzero(points[:, 0] < 0.8), len(NAMES), replace=False
    )
    return np.where(points[:, 0] > 0.9, 0, 1 + cKDTree(points[seeds]).query(points)[1])


def write_toy_atlas(folder: Path) -> tuple[Path, Path]:
    """lh.toy.annot and rh.toy.annot."""
    files = folder / "lh.toy.annot", folder / "rh.toy.annot"
    for seed, file in enumerate(files):
        write_annot(file, toy_labels(seed), NAMES, distinct_colours(len(NAMES)))
    return files


def toy_values(n_people: int = 12, seed: int = 0) -> np.ndarray:
    """People × regions, left first: three patterns and noise about 2.5 mm."""
    rng = np.random.default_rng(seed)
    groups = np.arange(N) % 3 == np.arange(3)[:, None]
    return (
        2.5
        + 0.2 * rng.standard_normal((n_people, 3)) @ groups
        + 0.02 * rng.standard_normal((n_people, N))
    )


def people(n: int = 12) -> list[str]:
    return [f"sub-{i:02d}" for i in range(n)]


def write_rows(path: Path, header: list[str], rows: list[list[Any]], between: str = "\t") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "\n".join(between.join(map(str, row)) for row in [header, *rows]) + "\n", encoding="utf-8"
    )
    return path


def aparcstats2table(folder: Path, X: np.ndarray) -> list[Path]:
    """A table per hemisphere, with the totals that FreeSurfer adds; the right one in another order of people."""
    files = []
    for side, part in (("lh", X[:, : len(NAMES)]), ("rh", X[:, len(NAMES) :])):
        names = [f"{side}_{name}_thickness" for name in NAMES]
        header = [
            f"{side}.aparc.thickness",
            *names,
            f"{side}_MeanThickness_thickness",
            "BrainSegVolNotVent",
            "eTIV",
        ]
        rows = [
            [who, *values, 2.5, 1.1e6, 1.5e6]
            for who, values in zip(people(len(X)), part.tolist(), strict=True)
        ]
        files.append(
            write_rows(
                folder / f"{side}.aparc.thickness.tsv", header, rows[:: 1 if side == "lh" else -1]
            )
        )
    return files


def enigma(folder: Path, X: np.ndarray) -> list[Path]:
    """One CSV, with mean thickness and area of the hemispheres and the intracranial volume."""
    names = [f"{side}_{name}_thickavg" for side in "LR" for name in NAMES]
    header = ["SubjID", *names, "LThickness", "RThickness", "LSurfArea", "RSurfArea", "ICV"]
    rows = [
        [who, *values, 2.5, 2.5, 9e4, 9e4, 1.5e6]
        for who, values in zip(people(len(X)), X.tolist(), strict=True)
    ]
    return [write_rows(folder / "CorticalMeasuresENIGMA_ThickAvg.csv", header, rows, ",")]


def xcp_d(folder: Path, X: np.ndarray) -> list[Path]:
    """A tree with one row per file, and files beside them that are not maps of regions."""
    header = [f"{side}_{name}" for side in ("LH", "RH") for name in NAMES]
    for who, values in zip(people(len(X)), X.tolist(), strict=True):
        stem = folder / who / "func" / f"{who}_task-rest_space-fsLR_atlas-Toy"
        write_rows(Path(f"{stem}_stat-reho_bold.tsv"), header, [values])
        write_rows(Path(f"{stem}_den-91k_stat-coverage_bold.tsv"), header, [[1.0] * len(header)])
        write_rows(
            Path(f"{stem}_den-91k_stat-mean_timeseries.tsv"), header, [values, values, values]
        )
        write_rows(
            folder / who / "func" / f"{who}_task-rest_outliers.tsv",
            ["framewise_displacement"],
            [[0], [1]],
        )
    return [folder]
