"""One file of maps of every kind, all of the same maps."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from scipy.io import savemat

from helpers.trees import write_cifti, write_gifti, write_mgh

RNG = np.random.default_rng(0)
# Six decimals hold these numbers exactly.
X = (RNG.integers(1, 400, (3, 642)) / 64).astype(np.float32)
BOTH = {"left": X, "right": X[:, ::-1].copy()}
CORTEX = {"left": RNG.random(642) < 0.9, "right": RNG.random(642) < 0.9}
NAMES = ["a", "b", "c"]


def _image(path: Path, array: nib.gifti.GiftiDataArray) -> None:
    nib.save(nib.gifti.GiftiImage(darrays=[array]), path)


def _two_dimensions(order: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        kind = "NIFTI_TYPE_FLOAT32"
        _image(path, nib.gifti.GiftiDataArray(X.T, "NIFTI_INTENT_NONE", kind, ordering=order))

    return write


def _gz(path: Path) -> None:
    write_gifti(path.with_suffix(""), X, "left")
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


def write_nifti(path: Path) -> None:
    nib.save(nib.Nifti1Image(X.T.reshape(107, 3, 2, 3, order="F"), np.eye(4)), path)


def _text(separator: str, header: str = "", *, ids: bool = False, decimal: str = ".") -> Any:
    """Write people × vertices as text."""

    def write(path: Path) -> None:
        rows = [[str(value).replace(".", decimal) for value in row] for row in X]
        if ids:
            rows = [[name, *row] for name, row in zip(NAMES, rows, strict=True)]
        text = "\r".join(separator.join(row) for row in rows)
        path.write_text(header + text, encoding="utf-8-sig", newline="")

    return write


ENCODINGS = ("ASCII", "B64BIN", "B64GZ")
# Name of a file → what writes the three maps X into it, on the left or on an unnamed side.
FORMATS: dict[str, Callable[[Path], object]] = {
    "a.mgh": lambda path: write_mgh(path, X),
    "a.mgz": lambda path: write_mgh(path, X),
    **{
        f"{encoding}.shape.gii": lambda path, encoding=encoding: write_gifti(
            path, X, "left", NAMES, encoding=f"GIFTI_ENCODING_{encoding}"
        )
        for encoding in ENCODINGS
    },
    "a.shape.gii.gz": _gz,
    "row.func.gii": _two_dimensions("RowMajorOrder"),
    "column.func.gii": _two_dimensions("ColumnMajorOrder"),
    "series.func.gii": lambda path: write_gifti(path, X, intent="NIFTI_INTENT_TIME_SERIES"),
    "a.dscalar.nii": lambda path: write_cifti(path, {"left": X}, None, NAMES),
    "lh.a.nii.gz": write_nifti,
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(X)),
    "a.npy": lambda path: np.save(path, X),
    "a.npz": lambda path: np.savez_compressed(path, x=X, subjects=NAMES),
    "a.mat": lambda path: savemat(path, {"x": X, "name": "text", "cell": np.array([{}], object)}),
    "b.mat": lambda path: savemat(path, {"x": X}, do_compression=True),
    "comma.csv": _text(",", ids=True),
    "header.csv": _text(",", ",".join(["id", *(f"v{i}" for i in range(642))]) + "\r", ids=True),
    "frame.csv": _text(",", ",".join(["", *map(str, range(642))]) + "\r", ids=True),
    "semicolon.csv": _text(";", decimal=","),
    "tab.txt": _text("\t", "# a comment\r"),
    "space.txt": _text("  "),
}
