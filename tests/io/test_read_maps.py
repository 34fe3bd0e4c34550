"""The readers, compared with nibabel; and files that claim what they do not hold."""

from __future__ import annotations

import gzip
import shutil
import struct
import subprocess
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.trees import write_cifti, write_gifti, write_mgh, write_morph, write_surface
from icofactor.errors import CohortError
from icofactor.io.maps import read_maps

RNG = np.random.default_rng(0)
X = (RNG.random((3, 642)) + 1).astype(np.float32)
LEFT, RIGHT = X, X[:, ::-1].copy()
CORTEX = {"left": RNG.random(642) < 0.9, "right": RNG.random(642) < 0.9}


@pytest.mark.parametrize("ending", ["mgh", "mgz"])
@pytest.mark.parametrize("n", [1, 3])
def test_mgh(tmp_path: Path, ending: str, n: int) -> None:
    maps = read_maps(write_mgh(tmp_path / f"lh.x.{ending}", X[:n]))
    np.testing.assert_array_equal(maps.parts[None], X[:n])
    assert maps.n_maps == n and maps.names == ()


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "float32"])
def test_mgh_types(tmp_path: Path, dtype: str) -> None:
    data = np.arange(100, dtype=dtype)[:, None, None]
    nib.save(nib.MGHImage(data, np.eye(4)), tmp_path / "x.mgh")
    np.testing.assert_array_equal(read_maps(tmp_path / "x.mgh").parts[None], np.arange(100)[None])


def test_morph(tmp_path: Path) -> None:
    np.testing.assert_array_equal(
        read_maps(write_morph(tmp_path / "lh.thickness", X[0])).parts[None], X[:1]
    )


@pytest.mark.parametrize(
    "encoding", ["GIFTI_ENCODING_ASCII", "GIFTI_ENCODING_B64BIN", "GIFTI_ENCODING_B64GZ"]
)
def test_gifti(tmp_path: Path, encoding: str) -> None:
    path = write_gifti(tmp_path / "x.shape.gii", X, "right", ["a", "b", "c"], encoding=encoding)
    maps = read_maps(path)
    np.testing.assert_array_equal(maps.parts["right"], np.stack(nib.load(path).agg_data()))
    assert maps.names == ("a", "b", "c")
    (tmp_path / "y.shape.gii.gz").write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(
        read_maps(tmp_path / "y.shape.gii.gz").parts["right"], maps.parts["right"]
    )


def test_gifti_time_series(tmp_path: Path) -> None:
    path = write_gifti(tmp_path / "x.func.gii", X, None, intent="NIFTI_INTENT_TIME_SERIES")
    np.testing.assert_array_equal(read_maps(path).parts[None], nib.load(path).agg_data().T)


@pytest.mark.parametrize("order", ["RowMajorOrder", "ColumnMajorOrder"])
def test_gifti_array_of_two_dimensions(tmp_path: Path, order: str) -> None:
    array = nib.gifti.GiftiDataArray(X.T, "NIFTI_INTENT_NONE", "NIFTI_TYPE_FLOAT32", ordering=order)
    nib.save(nib.gifti.GiftiImage(darrays=[array]), tmp_path / "x.func.gii")
    np.testing.assert_array_equal(read_maps(tmp_path / "x.func.gii").parts[None], X)


def test_cifti_scalars(tmp_path: Path) -> None:
    path = write_cifti(
        tmp_path / "x.dscalar.nii", {"left": LEFT, "right": RIGHT}, CORTEX, ["a", "b", "c"]
    )
    maps = read_maps(path)
    assert (
        maps.names == ("a", "b", "c")
        and maps.step is None
        and list(maps.parts) == ["left", "right"]
    )
    data, axis = nib.load(path).get_fdata(dtype=np.float32), nib.load(path).header.get_axis(1)
    for (_, columns, model), side in zip(axis.iter_structures(), ("left", "right"), strict=True):
        expected = np.full((3, 642), np.nan, dtype=np.float32)
        expected[:, model.vertex] = data[:, columns]
        np.testing.assert_array_equal(maps.parts[side], expected)


def test_cifti_series(tmp_path: Path) -> None:
    maps = read_maps(write_cifti(tmp_path / "x.dtseries.nii", {"right": RIGHT}, step=0.72))
    np.testing.assert_array_equal(maps.parts["right"], RIGHT)
    assert (
        maps.step == pytest.approx(0.72, rel=1e-12)
        and maps.names == ()
        and list(maps.parts) == ["right"]
    )


def test_cifti_leaves_out_voxels(tmp_path: Path) -> None:
    voxels = nib.cifti2.BrainModelAxis.from_mask(
        np.ones((2, 2, 2), dtype=bool), name="thalamus_left", affine=np.eye(4)
    )
    surface = nib.cifti2.BrainModelAxis.from_mask(
        CORTEX["left"], name="CIFTI_STRUCTURE_CORTEX_LEFT"
    )
    axis, n = voxels + surface, 8 + int(CORTEX["left"].sum())
    image = nib.Cifti2Image(
        np.arange(n, dtype=np.float32)[None], (nib.cifti2.ScalarAxis(["a"]), axis)
    )
    image.nifti_header.set_intent("ConnDenseScalar")
    nib.save(image, tmp_path / "x.dscalar.nii")
    maps = read_maps(tmp_path / "x.dscalar.nii")
    np.testing.assert_array_equal(maps.parts["left"][0][CORTEX["left"]], np.arange(8, n))
    assert maps.notes == ("left out 1 structure, not of the cortex",)


def test_npy_and_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.asfortranarray(X))
    np.testing.assert_array_equal(read_maps(tmp_path / "x.npy").parts[None], X)
    np.save(tmp_path / "y.npy", X[0].astype(np.float64))
    np.testing.assert_array_equal(read_maps(tmp_path / "y.npy").parts[None], X[:1])
    mask = np.r_[CORTEX["left"], CORTEX["right"]]
    np.savez(
        tmp_path / "x.npz",
        x_lh=LEFT,
        x_rh=RIGHT,
        subject=["p", "q", "r"],
        age=np.arange(3),
        mask=mask,
    )
    maps = read_maps(tmp_path / "x.npz")
    np.testing.assert_array_equal(maps.parts["left"], LEFT)
    np.testing.assert_array_equal(maps.parts["right"], RIGHT)
    assert maps.names == ("p", "q", "r")
    np.testing.assert_array_equal(maps.columns["age"], [0, 1, 2])
    np.testing.assert_array_equal(maps.mask, mask)


def test_npz_of_several_arrays_asks(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", thickness=X, area=2 * X)
    with pytest.raises(
        CohortError,
        match=r"x\.npz: contains thickness \(3, 642\), area \(3, 642\); name .* measure",
    ):
        read_maps(tmp_path / "x.npz")
    np.testing.assert_array_equal(read_maps(tmp_path / "x.npz", "area").parts[None], 2 * X)
    with pytest.raises(CohortError, match="none is called 'volume'"):
        read_maps(tmp_path / "x.npz", "volume")


def test_arrays_that_are_no_maps(tmp_path: Path) -> None:
    np.save(tmp_path / "turned.npy", np.zeros((10242, 5), dtype=np.float32))
    with pytest.raises(CohortError, match=r"turned\.npy: has shape \(10242, 5\).*transpose it"):
        read_maps(tmp_path / "turned.npy")
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    with pytest.raises(CohortError, match="numbers, subjects × sites, are read"):
        read_maps(tmp_path / "words.npy")
    np.save(tmp_path / "object.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    with pytest.raises(CohortError, match="contains Python objects, which are never loaded"):
        read_maps(tmp_path / "object.npy")


def _mgh_header(shape: tuple[int, ...], kind: int = 3) -> bytes:
    return struct.pack(">6i", 1, *shape, kind) + bytes(260)


def _npz_member(shape: tuple[int, ...]) -> bytes:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (64 - (10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


HUGE = 10**6, 1, 1, 2 * 10**9


def test_headers_that_promise_too_much(tmp_path: Path) -> None:
    """None of them allocates what it promises: 8 TB."""
    (tmp_path / "a.mgh").write_bytes(_mgh_header(HUGE))
    (tmp_path / "a.mgz").write_bytes(gzip.compress(_mgh_header(HUGE)))
    (tmp_path / "b.mgh").write_bytes(_mgh_header((2**31 - 1, 1, 1, 1)))
    (tmp_path / "a.npy").write_bytes(_npz_member((10**6, 2 * 10**6)))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", _npz_member((10**6, 2 * 10**6)))
    (tmp_path / "lh.thickness").write_bytes(b"\xff\xff\xff" + struct.pack(">3i", 2**30, 0, 1))
    gifti = (
        write_gifti(tmp_path / "a.shape.gii", X[0])
        .read_text()
        .replace('Dim0="642"', 'Dim0="4000000"')
    )
    (tmp_path / "a.shape.gii").write_text(gifti)
    cifti = bytearray(write_cifti(tmp_path / "a.dscalar.nii", {"left": LEFT}).read_bytes())
    cifti[16 + 8 * 5 : 16 + 8 * 6] = struct.pack("<q", 2**40)
    (tmp_path / "a.dscalar.nii").write_bytes(cifti)
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(CohortError, match=path.name) as caught:
            read_maps(path)
        assert "truncated" in str(caught.value) or any(
            word in str(caught.value) for word in ("origin", "vertices", "damaged")
        )


def test_a_file_that_grows_too_much_is_refused(tmp_path: Path) -> None:
    """2 GiB of zeros in 2 MB; the header tells the truth."""
    with gzip.open(tmp_path / "a.mgz", "wb", compresslevel=1) as file:
        file.write(_mgh_header((10**6, 1, 1, 512)))
    with pytest.raises(
        CohortError, match=r"a\.mgz: claims 1\.91 GiB of data in \d+ bytes, .*check its origin"
    ):
        read_maps(tmp_path / "a.mgz")


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            '[<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]',
            "declares XML entities or attributes",
        ),
        ('[<!ATTLIST DataArray F CDATA "AAAA">]', "declares XML entities or attributes"),
        ('SYSTEM "gifti.dtd" [<!ATTLIST M F CDATA "AAAA">]', "declares XML entities or attributes"),
        ('[<!ENTITY % x SYSTEM "file:///etc/passwd"> %x;]', "declares XML entities or attributes"),
        ('SYSTEM "http://www.nitrc.org/frs/download.php/115/gifti.dtd"', None),
    ],
)
def test_a_document_type_may_be_named_but_not_declared(
    tmp_path: Path, declared: str, problem: str | None
) -> None:
    text = write_gifti(tmp_path / "a.shape.gii", X[0]).read_text()
    start = text.index("<GIFTI")
    (tmp_path / "a.shape.gii").write_text(
        f'<?xml version="1.0"?><!DOCTYPE GIFTI {declared}>{text[start:]}'
    )
    if problem is None:
        assert read_maps(tmp_path / "a.shape.gii").n_maps == 1
        return
    with pytest.raises(CohortError) as caught:
        read_maps(tmp_path / "a.shape.gii")
    assert caught.value.path.endswith("a.shape.gii") and caught.value.problem.startswith(problem)


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        (f'<DataArray a="{"A" * 70_000}"/>', "characters of attributes"),
        ("<M>" + "A" * 5 * 10**6 + "</M>", "characters of text"),
        (
            "<M>" + "A" * 4 * 10**6 + "</M>" + ("<M>" + "A" * 4 * 10**6 + "</M>") * 16,
            "characters of names and values",
        ),
        ("<DataArray/>", "without data"),
    ],
)
def test_the_parts_of_a_document_are_bounded(tmp_path: Path, inside: str, problem: str) -> None:
    (tmp_path / "a.shape.gii").write_text(f"<GIFTI>{inside}</GIFTI>")
    with pytest.raises(CohortError) as caught:
        read_maps(tmp_path / "a.shape.gii")
    assert problem in caught.value.problem


def test_more_data_than_an_array_has_are_not_gathered(tmp_path: Path) -> None:
    text = write_gifti(tmp_path / "a.shape.gii", X[0]).read_text()
    (tmp_path / "a.shape.gii").write_text(text.replace("<Data>", "<Data>" + "A" * 5 * 10**6))
    with pytest.raises(CohortError, match="characters of text; check"):
        read_maps(tmp_path / "a.shape.gii")


def test_data_in_outside_files_are_refused(tmp_path: Path) -> None:
    text = write_gifti(tmp_path / "a.shape.gii", X[0]).read_text()
    outside = text.replace('Encoding="GZipBase64Binary"', 'Encoding="ExternalFileBinary"')
    (tmp_path / "b.shape.gii").write_text(outside)
    with pytest.raises(CohortError, match="ExternalFileBinary"):
        read_maps(tmp_path / "b.shape.gii")


def test_files_of_other_kinds_say_what_they_are(tmp_path: Path) -> None:
    sphere = write_surface(tmp_path / "lh.sphere.gii", np.eye(3), np.array([[0, 1, 2]]))
    nib.freesurfer.write_geometry(tmp_path / "lh.white", np.eye(3), np.array([[0, 1, 2]]))
    nib.save(nib.Nifti1Image(np.zeros((3, 3, 3), dtype=np.float32), np.eye(4)), tmp_path / "t1.nii")
    nib.save(nib.MGHImage(np.zeros((3, 3, 3), dtype=np.float32), np.eye(4)), tmp_path / "t1.mgh")
    (tmp_path / "empty.mgh").touch()
    (tmp_path / "words.txt").write_text("hello")
    (tmp_path / "words.doc").write_text("hello")
    told = {
        sphere: "is a surface",
        tmp_path / "lh.white": "is a surface",
        tmp_path / "t1.nii": "is a NIfTI-1 volume",
        tmp_path / "t1.mgh": "is a volume of shape",
        tmp_path / "empty.mgh": "is empty",
        tmp_path / "words.txt": "contains no numbers",
        tmp_path / "words.doc": "has an unknown format",
        tmp_path / "nowhere.mgh": "no such file",
        tmp_path: "is a folder|is not a readable|unknown format",
    }
    for path, text in told.items():
        with pytest.raises(CohortError, match=f"{path.name}: ({text})"):
            read_maps(path)


def test_older_cifti_and_other_dense_files_are_refused(tmp_path: Path) -> None:
    path = write_cifti(tmp_path / "a.dscalar.nii", {"left": LEFT})
    data = path.read_bytes()
    path.write_bytes(data.replace(b'<CIFTI Version="2.0"', b'<CIFTI Version="1.0"'))
    with pytest.raises(
        CohortError, match=r"is CIFTI-1; convert it to CIFTI-2 with wb_command -file-convert"
    ):
        read_maps(path)
    path.write_bytes(data.replace(b"CIFTI_INDEX_TYPE_SCALARS", b"CIFTI_INDEX_TYPE_PARCELS"))
    with pytest.raises(CohortError, match="contains brain_models × parcels; dscalar and dtseries"):
        read_maps(path)


@pytest.mark.skipif(shutil.which("wb_command") is None, reason="wb_command is not installed")
def test_files_that_workbench_writes(tmp_path: Path) -> None:
    run = lambda *words: subprocess.run(
        ["wb_command", *words], cwd=tmp_path, check=True, capture_output=True
    )
    write_gifti(tmp_path / "left.func.gii", LEFT, "left", ["a", "b", "c"])
    write_gifti(tmp_path / "roi.shape.gii", CORTEX["left"].astype(float), "left")
    left = ("-left-metric", "left.func.gii", "-roi-left", "roi.shape.gii")
    run("-cifti-create-dense-scalar", "x.dscalar.nii", *left)
    run("-cifti-create-dense-timeseries", "x.dtseries.nii", *left, "-timestep", "0.72")
    run("-metric-math", "x", "x.func.gii", "-var", "x", "left.func.gii")
    expected = np.where(CORTEX["left"], LEFT, np.float32(np.nan))
    np.testing.assert_array_equal(read_maps(tmp_path / "x.dscalar.nii").parts["left"], expected)
    np.testing.assert_array_equal(read_maps(tmp_path / "x.dtseries.nii").parts["left"], expected)
    np.testing.assert_array_equal(read_maps(tmp_path / "x.func.gii").parts["left"], LEFT)
    assert read_maps(tmp_path / "x.dtseries.nii").step == pytest.approx(0.72, rel=1e-6)
    run("-file-convert", "-cifti-version-convert", "x.dscalar.nii", "1", "old.dscalar.nii")
    with pytest.raises(CohortError, match=r"old\.dscalar\.nii: is CIFTI-1"):
        read_maps(tmp_path / "old.dscalar.nii")


WRITERS = {
    "a.mgz": lambda path: write_mgh(path, X),
    "a.mgh": lambda path: write_mgh(path, X),
    "a.shape.gii": lambda path: write_gifti(path, X),
    "a.dscalar.nii": lambda path: write_cifti(path, {"left": LEFT, "right": RIGHT}, CORTEX),
    "lh.thickness": lambda path: write_morph(path, X[0]),
    "a.npz": lambda path: np.savez_compressed(path, X=X),
    "a.npy": lambda path: np.save(path, X),
}


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_files_are_read_or_refused_by_name(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    path = tmp_path / name
    if not path.exists():
        WRITERS[name](path)
        (tmp_path / "whole").write_bytes(path.read_bytes())
    whole = (tmp_path / "whole").read_bytes()
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(0, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(broken[: data.draw(st.integers(0, len(broken)))])
    try:
        maps = read_maps(path)
    except CohortError as error:
        assert str(error).startswith(f"{path}: ")
    else:
        assert all(part.ndim == 2 for part in maps.parts.values())
    path.write_bytes(whole)


@pytest.mark.parametrize("name", WRITERS)
def test_every_truncation_is_noticed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole = path.read_bytes()
    if name == "a.mgh":  # what follows the data is not needed
        whole = whole[: 284 + X.nbytes]
    for length in np.linspace(0, len(whole) - 1, 40, dtype=int):
        path.write_bytes(whole[:length])
        with pytest.raises(CohortError, match=name):
            read_maps(path)
