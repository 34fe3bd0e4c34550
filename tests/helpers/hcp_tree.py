"""A tree that imitates the HCP's layout, made from one subject's real series and from real group maps.

Subjects are copies with noise of their own; the right hemisphere's series are those of the left, put on the right mesh.
"""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np

from icofactor.preprocessing.resampling import Resampler

SIDES = {"left": "L", "right": "R"}
TR = 1.4  # of the real series
N = 32492


def cortex(data: Path) -> dict[str, np.ndarray]:
    """Side → atlasroi of fs_LR 32k."""
    return {
        side: nibabel.load(data / "resample" / f"{letter}.atlasroi.32k_fs_LR.shape.gii").agg_data()
        > 0
        for side, letter in SIDES.items()
    }


def columns_of(roi: dict[str, np.ndarray]) -> nibabel.cifti2.BrainModelAxis:
    """The brain ordinates of both hemispheres; slow to make, so it is made once."""
    left, right = (
        nibabel.cifti2.BrainModelAxis.from_mask(roi[side], name=f"cortex_{side}") for side in SIDES
    )
    return left + right


def write_cifti(
    file: Path, data: np.ndarray, columns: nibabel.cifti2.BrainModelAxis, tr: float | None = None
) -> None:
    """(n_maps, n_ordinates) as dscalar, or as dtseries when `tr` is given."""
    rows = (
        nibabel.cifti2.ScalarAxis([f"map {i + 1}" for i in range(len(data))])
        if tr is None
        else nibabel.cifti2.SeriesAxis(0, tr, len(data))
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    nibabel.Cifti2Image(data.astype(np.float32), header=(rows, columns)).to_filename(file)


class HcpMaker:
    """What is needed to write subjects; the series are brought to 32k once."""

    def __init__(self, data: Path, n_volumes: int = 200) -> None:
        self.roi = cortex(data)
        self.columns = columns_of(self.roi)
        self.series = self.flat(_series(data, n_volumes))
        with np.load(data / "group_maps_fsLR32k.npz") as archive:
            thickness = archive["brainspace_thickness"]
            myelin = {
                "left": archive["hcp_myelin_RP210_lh"],
                "right": archive["hcp_myelin_RP210_rh"],
            }
        # that file's medial wall is a little larger
        thickness = np.where(np.isfinite(thickness), thickness, np.nanmedian(thickness))
        self.maps = {
            "thickness_MSMAll": self.flat(
                {"left": thickness[None, :N], "right": thickness[None, N:]}
            ),
            "MyelinMap_BC_MSMAll": self.flat(
                {side: values[None] for side, values in myelin.items()}
            ),
        }

    def flat(self, values: dict[str, np.ndarray]) -> np.ndarray:
        """(n_maps, n_ordinates) of both hemispheres' (n_maps, 32492)."""
        return np.concatenate([values[side][:, where] for side, where in self.roi.items()], axis=1)

    def subject(self, tree: Path, name: str, runs: tuple[str, ...], seed: int) -> None:
        """Write thickness, myelin and the runs of one subject."""
        rng = np.random.default_rng(seed)
        place = tree / name / "MNINonLinear"
        for kind, group in self.maps.items():
            slope = (
                1 + rng.normal(0, 0.1) * np.linspace(-1, 1, group.shape[1]) + rng.normal(0, 0.05)
            )
            made = group * slope + rng.normal(0, 0.02, group.shape)
            made[0, :3] = 30.0  # outliers
            write_cifti(
                place / "fsaverage_LR32k" / f"{name}.{kind}.32k_fs_LR.dscalar.nii",
                made,
                self.columns,
            )
        length = len(self.series) // len(runs)
        for number, run in enumerate(runs):
            self.run(
                place,
                run,
                self.rest(slice(number * length, (number + 1) * length), 10 * seed + number),
            )

    def rest(self, volumes: slice, seed: int) -> np.ndarray:
        """(n_volumes, n_ordinates) real series with a subject's own scale and noise."""
        rng = np.random.default_rng(seed)
        part = self.series[volumes]
        return (
            rng.uniform(0.8, 1.2) * part
            + 0.2 * rng.standard_normal(part.shape, dtype=np.float32)
            + 1000
        )

    def run(self, place: Path, run: str, data: np.ndarray, tr: float = TR) -> None:
        """Write one run (n_volumes, n_ordinates)."""
        write_cifti(
            place / "Results" / run / f"{run}_Atlas_MSMAll_hp2000_clean.dtseries.nii",
            data,
            self.columns,
            tr,
        )


def _series(data: Path, n_volumes: int) -> dict[str, np.ndarray]:
    """Side → (n_volumes, 32492) real series."""
    with np.load(data / "rest_fsaverage5_left.npz") as archive:
        real = archive["lh"][:, :n_volumes]
    found = {}
    for side, letter in SIDES.items():
        place = data / "resample"
        resampler = Resampler(
            place / f"fsaverage5_std_sphere.{letter}.10k_fsavg_{letter}.surf.gii",
            place / f"fs_LR-deformed_to-fsaverage.{letter}.sphere.32k_fs_LR.surf.gii",
            method="barycentric",
        )
        found[side] = resampler(np.ascontiguousarray(real.T))
    return found
