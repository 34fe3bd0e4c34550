"""What the experiments share: the data, how much is computed, and the folder of the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reproduction.data import Dataset
from reproduction.settings import Sizes

# matplotlib's figure and pandas' table, which both packages leave untyped.
Figure = Any
Frame = Any


@dataclass(frozen=True, eq=False)
class Study:
    """One reproduction of the paper.

    Attributes
    ----------
    folder : results; tables/ and figures/ are in it
    datasets : the datasets, numbered as in the paper where they are simulated
    sizes : how much is computed
    seed : of random starts
    """

    folder: Path
    datasets: Sequence[Dataset]
    sizes: Sizes
    seed: int

    @property
    def lead(self) -> Dataset:
        """The dataset of the paper's figures: left myelin, or the first one."""
        return next((data for data in self.datasets if data.modality == "myelin"), self.datasets[0])

    @property
    def convergence_datasets(self) -> list[Dataset]:
        """Left myelin, as in the paper, and left thickness, as far as they are among the data."""
        thickness = [data for data in self.datasets if data.modality == "thickness"]
        return list(dict.fromkeys([self.lead, *thickness[:1]]))

    def write_table(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a table as TSV."""
        path = self._path("tables", f"{name}.tsv")
        pd.DataFrame(list(rows)).to_csv(path, sep="\t", index=False, float_format="%.6g")

    def read_table(self, name: str) -> Frame | None:
        """Read a table of this run or of an earlier one; None where its experiment has not run."""
        path = self._path("tables", f"{name}.tsv")
        return pd.read_csv(path, sep="\t") if path.exists() else None

    def save_figure(self, name: str, figure: Figure) -> None:
        """Save a figure as PNG, and say on it where the data are simulated."""
        if self.lead.simulated:
            figure.text(0.005, 0.005, "simulated data", fontsize=7, color="#a33b00")
        figure.savefig(self._path("figures", f"{name}.png"), dpi=120)

    def write_datasets(self) -> None:
        """Write the list of datasets."""
        rows = [
            {
                "number": data.number,
                "dataset": data.name,
                "simulated": "yes" if data.simulated else "no",
            }
            for data in self.datasets
        ]
        self.write_table("datasets", rows)

    def _path(self, folder: str, name: str) -> Path:
        path = self.folder / folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def hoyer(maps: np.ndarray) -> float:
    """Return the mean sparsity of the columns after Hoyer: 0 where all values are equal, 1 where one is not zero."""
    root = np.sqrt(len(maps))
    length = np.linalg.norm(maps, axis=0)
    used = length > 0
    if not used.any():
        return float("nan")
    ratios = np.abs(maps[:, used]).sum(axis=0) / length[used]
    return float(((root - ratios) / (root - 1)).mean())


def overlap(maps: np.ndarray) -> float:
    """Return the mean cosine between the columns, without signs: 0 where no two share a site."""
    length = np.linalg.norm(maps, axis=0)
    used = length > 0
    # The sign of a map of dictionary learning is arbitrary.
    unit = np.abs(maps[:, used]) / length[used]
    n_maps = unit.shape[1]
    if n_maps < 2:
        return float("nan")
    cosines = unit.T @ unit
    return float((cosines.sum() - n_maps) / (n_maps * (n_maps - 1)))
