"""What the readers return, compared with nibabel and SciPy; and files that promise what they lack."""

from __future__ import annotations

import gzip
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from scipy.io import savemat

from helpers.map_files import BOTH, CORTEX, FORMATS, NAMES, X, write_nifti
from helpers.trees import write_cifti, write_gifti, write_morph, write_surface
from icofactor.errors import CohortError
from icofactor.io.freesurfer import read_annot
from icofactor.io.maps import read_maps


def parts_of(path: Path, measure: str | None = None) -> dict[str | None, np.ndarray]:
    return {side: np.asarray(part) for side, part in read_maps(path, measure).parts.items()}


def assert_refused(path: Path, measure: str | None = None) -> None:
    with pytest.raises(CohortError) as refusal:
        read_maps(path, measure)
    assert refusal.value.path == str(path)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_maps(name: str, tmp_path: Path) -> None:
    FORMATS[name](tmp_path / name)
    (part,) = parts_of(tmp_path / name).values()
    np.testing.assert_array_equal(part.astype(np.float32), X)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "f4", "u2"])
def test_mgh_types(tmp_path: Path, dtype: str) -> None:
    data = np.arange(100, dtype=dtype)
    nib.save(nib.MGHImage(data[:, None, None], np.eye(4)), tmp_path / "x.mgh")
    np.testing.assert_array_equal(parts_of(tmp_path / "x.mgh")[None], data[None])


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "?"])
@pytest.mark.parametrize("compressed", [False, True])
def test_matlab_types(tmp_path: Path, dtype: str, compressed: bool) -> None:
    values = np.arange(2 * 642).reshape(2, 642).astype(dtype)
    savemat(tmp_path / "x.mat", {"x": values, "other": values[:, :10]}, do_compression=compressed)
    part = parts_of(tmp_path / "x.mat")[None]
    np.testing.assert_array_equal(part, values)
    assert part.dtype == (np.dtype("u1") if dtype == "?" else values.dtype)
    np.testing.assert_array_equal(parts_of(tmp_path / "x.mat", "other")[None], values[:, :10])


def test_one_map(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X[0])
    np.savetxt(tmp_path / "x.left.txt", X[0])
    write_morph(tmp_path / "lh.thickness", X[0])
    savemat(tmp_path / "x.mat", {"x": X[:1].T})
    for path in tmp_path.iterdir():
        np.testing.assert_array_equal(parts_of(path)[None].astype(np.float32), X[:1])


def test_cifti_scalars(tmp_path: Path) -> None:
    path = write_cifti(tmp_path / "x.dscalar.nii", BOTH, CORTEX, NAMES)
    maps = read_maps(path)
    assert maps.names == tuple(NAMES)
    assert maps.step is None
    assert list(maps.parts) == ["left", "right"]
    image = nib.load(path)
    data = image.get_fdata(dtype=np.float32)
    structures = image.header.get_axis(1).iter_structures()
    for (_, columns, model), side in zip(structures, ("left", "right"), strict=True):
        expected = np.full((3, 642), np.nan, dtype=np.float32)
        expected[:, model.vertex] = data[:, columns]
        np.testing.assert_array_equal(maps.parts[side], expected)


def test_cifti_series(tmp_path: Path) -> None:
    path = write_cifti(tmp_path / "x.dtseries.nii", {"right": BOTH["right"]}, step=0.72)
    maps = read_maps(path)
    np.testing.assert_array_equal(maps.parts["right"], BOTH["right"])
    assert maps.step == pytest.approx(0.72, rel=1e-12)
    assert maps.names == ()


def test_cifti_leaves_out_voxels(tmp_path: Path) -> None:
    inside = np.ones((2, 2, 2), dtype=bool)
    axes = nib.cifti2.BrainModelAxis
    voxels = axes.from_mask(inside, name="thalamus_left", affine=np.eye(4))
    surface = axes.from_mask(CORTEX["left"], name="CIFTI_STRUCTURE_CORTEX_LEFT")
    values = np.arange(8 + CORTEX["left"].sum(), dtype=np.float32)
    image = nib.Cifti2Image(values[None], (nib.cifti2.ScalarAxis(["a"]), voxels + surface))
    image.nifti_header.set_intent("ConnDenseScalar")
    nib.save(image, tmp_path / "x.dscalar.nii")
    maps = read_maps(tmp_path / "x.dscalar.nii")
    np.testing.assert_array_equal(maps.parts["left"][0][CORTEX["left"]], values[8:])
    assert len(maps.notes) == 1


def test_scaled_values(tmp_path: Path) -> None:
    write_cifti(tmp_path / "x.dscalar.nii", {"left": X})
    write_nifti(tmp_path / "lh.x.nii")
    for path, offset, form in (
        (tmp_path / "x.dscalar.nii", 176, "<2d"),
        (tmp_path / "lh.x.nii", 112, "<2f"),
    ):
        content = bytearray(path.read_bytes())
        struct.pack_into(form, content, offset, 2.0, 1.0)
        path.write_bytes(content)
        (part,) = parts_of(path).values()
        np.testing.assert_array_equal(part, 2 * X + 1)


# ---------------------------------------------------------------------- npz and text


def test_npz_of_two_hemispheres(tmp_path: Path) -> None:
    mask = np.r_[CORTEX["left"], CORTEX["right"]]
    path = tmp_path / "x.npz"
    np.savez(path, x_lh=X, x_rh=BOTH["right"], subject=NAMES, age=np.arange(3), mask=mask)
    maps = read_maps(path)
    for side, part in maps.parts.items():
        np.testing.assert_array_equal(part, BOTH[str(side)])
    assert maps.names == tuple(NAMES)
    np.testing.assert_array_equal(maps.columns["age"], [0, 1, 2])
    np.testing.assert_array_equal(maps.mask, mask)


@pytest.mark.parametrize("dtype", ["u1", "i8", "f8", "?"])
def test_masks_of_any_type_count(tmp_path: Path, dtype: str) -> None:
    np.savez(tmp_path / "x.npz", x=X, mask=CORTEX["left"].astype(dtype))
    np.testing.assert_array_equal(read_maps(tmp_path / "x.npz").mask, CORTEX["left"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"mask": CORTEX["left"][:-1]},
        {"mask": CORTEX["left"] * 2.0},
        {"subjects": NAMES[:2]},
        {"subjects": ["a", "b", "b"]},
        {"subjects": np.array(NAMES)[:, None]},
        {"x_rh": X[:2]},
    ],
)
def test_npz_with_an_array_that_does_not_fit(tmp_path: Path, wrong: dict[str, Any]) -> None:
    np.savez(tmp_path / "x.npz", **{"x_lh": X, **wrong})
    assert_refused(tmp_path / "x.npz")


def test_columns_of_another_length_are_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X, age=np.arange(2))
    maps = read_maps(tmp_path / "x.npz")
    assert "age" not in maps.columns
    assert "age" in maps.notes[0]


def test_npz_of_several_arrays_asks(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", thickness=X, area=2 * X)
    np.testing.assert_array_equal(parts_of(tmp_path / "x.npz", "area")[None], 2 * X)
    for measure in (None, "volume"):
        assert_refused(tmp_path / "x.npz", measure)


@pytest.mark.parametrize(
    "text",
    [
        "v0,v1,v10,v2\n1,2,3,4\n",
        "v3,v2,v1\n1,2,3\n",
        "a,a\n1,2\n",
        "lh_1,rh_1,lh_2,rh_2\n1,2,3,4\n",
        "a,1,2\na,3,4\n",
        "a,1,2\nb,1_000,4\n",
        "1,2\n3\n",
        "1,2\n3,4,5\n",
        "1\nx\n",
        '"1,2\n3,4\n',
        "\n",
        "",
        "1,2\n\x00,4\n",
    ],
)
def test_text_that_is_not_a_map(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert_refused(tmp_path / "x.csv")


def test_a_missing_cell_is_no_header_and_no_comment(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,missing,2\nb,3,4\n")
    assert_refused(tmp_path / "x.csv")
    (tmp_path / "x.csv").write_text("#N/A,2,n/a\n3,4,#NULL!\n-,.,5\n")
    expected = [[np.nan, 2, np.nan], [3, 4, np.nan], [np.nan, np.nan, 5]]
    np.testing.assert_array_equal(parts_of(tmp_path / "x.csv")[None], expected)


# ---------------------------------------------------------------------- files that are refused


def test_arrays_that_are_no_maps(tmp_path: Path) -> None:
    for array in (np.zeros((10242, 5)), np.array(["a", "b"]), np.zeros((2, 2, 2)), np.zeros(0)):
        np.save(tmp_path / "x.npy", array)
        assert_refused(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    assert_refused(tmp_path / "x.npy")


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    volume = np.zeros((3, 3, 3), dtype=np.float32)
    write_surface(tmp_path / "lh.sphere.gii", np.eye(3), np.array([[0, 1, 2]]))
    nib.freesurfer.write_geometry(tmp_path / "lh.white", np.eye(3), np.array([[0, 1, 2]]))
    nib.save(nib.Nifti1Image(volume, np.eye(4)), tmp_path / "t1.nii")
    nib.save(nib.MGHImage(volume, np.eye(4)), tmp_path / "t1.mgh")
    (tmp_path / "empty.mgh").touch()
    (tmp_path / "words.doc").write_text("hello")
    (tmp_path / "v73.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    for path in (*tmp_path.iterdir(), tmp_path / "nowhere.mgh", tmp_path):
        assert_refused(path)


def test_cifti_of_other_kinds(tmp_path: Path) -> None:
    path = write_cifti(tmp_path / "x.dscalar.nii", {"left": X})
    content = path.read_bytes()
    for old, new in (
        (b'Version="2', b'Version="1'),
        (b"INDEX_TYPE_SCALARS", b"INDEX_TYPE_PARCELS"),
        (b'SurfaceNumberOfVertices="642"', b'SurfaceNumberOfVertices="1e9"'),
        (b'IndexCount="642"', b'IndexCount="643"'),
    ):
        assert old in content
        path.write_bytes(content.replace(old, new))
        assert_refused(path)


def test_a_brain_model_without_end_takes_no_memory(tmp_path: Path) -> None:
    from hostile.limits import outcome_of

    path = write_cifti(tmp_path / "x.dscalar.nii", {"left": X})
    content = path.read_bytes().replace(b"map 3", b"")
    assert b'IndexCount="642"' in content
    path.write_bytes(content.replace(b'IndexCount="642"', b'IndexCount="99999642"'))
    verdict, message = outcome_of(lambda: read_maps(path), tmp_path)
    assert verdict == "refused", (verdict, message)


def test_annotations_with_gaps_and_vertices_in_any_order(tmp_path: Path) -> None:
    """A table may have gaps, as FreeSurferColorLUT.txt has them."""
    number = lambda *values: struct.pack(f">{len(values)}i", *values)
    text = lambda word: number(len(word) + 1) + word + b"\0"
    vertices = number(3, 2, 5, 0, 9, 1, 0)
    entries = number(3) + text(b"five") + number(5, 0, 0, 0) + number(7) + text(b"nine")
    table = number(1, -2, 8) + text(b"file") + number(2) + entries + number(9, 0, 0, 0)
    (tmp_path / "lh.x.annot").write_bytes(vertices + table)
    keys, names = read_annot(tmp_path / "lh.x.annot")
    np.testing.assert_array_equal(keys, [1, -1, 0])
    assert names == {0: "five", 1: "nine"}


# ---------------------------------------------------------------------- files that do harm


def _mgh_header(*shape: int) -> bytes:
    return struct.pack(">6i", 1, *shape, 3) + bytes(260)


def _npy(header: str) -> bytes:
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header) + 1) + header.encode() + b"\n"


def _npy_of(shape: str, dtype: str = "<f4") -> bytes:
    return _npy(f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}")


def _mat(element_type: int, size: int, content: bytes = b"") -> bytes:
    """A MAT-file of one array of 40 × 2562 doubles, whose data claim to be of a type and size."""
    element = lambda kind, data: struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)
    body = element(6, struct.pack("<II", 6, 0)) + element(5, struct.pack("<ii", 40, 2562))
    body += element(1, b"thickness") + struct.pack("<II", element_type, size) + content
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 256) + b"IM"
    return head + struct.pack("<II", 14, len(body)) + body


def _gii(declaration: str = "", inside: str = "", n: int = 642, data: str = "") -> bytes:
    return (
        f'<?xml version="1.0"?>{declaration}<GIFTI>{inside}<DataArray Intent="NIFTI_INTENT_SHAPE" '
        f'DataType="NIFTI_TYPE_FLOAT32" ArrayIndexingOrder="RowMajorOrder" Dimensionality="1" '
        f'Dim0="{n}" Encoding="GZipBase64Binary" Endian="LittleEndian"><Data>{data}</Data>'
        "</DataArray></GIFTI>"
    ).encode()


def _zip(**members: bytes) -> bytes:
    import io

    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return stream.getvalue()


def _zeros(n_bytes: int) -> str:
    import base64
    import zlib

    return base64.b64encode(zlib.compress(bytes(n_bytes), 9)).decode()


BOMBS: dict[str, Callable[[], tuple[str, bytes]]] = {
    "8 TB in an MGH": lambda: ("a.mgh", _mgh_header(10**6, 1, 1, 2**31 - 1)),
    "1 GB of zeros": lambda: (
        "a.mgz",
        gzip.compress(_mgh_header(10**6, 1, 1, 256)) + 64 * gzip.compress(bytes(2**24)),
    ),
    "8 TB in a npy": lambda: ("a.npy", _npy_of("(1000000, 2000000)")),
    "8 TB in an npz": lambda: ("a.npz", _zip(x=_npy_of("(1000000, 2000000)"))),
    "1 GB of zeros in an npz": lambda: ("a.npz", _zip(x=_npy_of("(250, 1000000)") + bytes(10**9))),
    "a type of 4 GB": lambda: ("a.npz", _zip(x=_npy_of("(3,)", "<U1000000000"))),
    "a header that nests": lambda: ("a.npy", _npy("(" * 4000 + ")" * 4000)),
    "a negative shape": lambda: ("a.npy", _npy_of("(-3, -642)") + bytes(8000)),
    "4 GB of morph": lambda: ("lh.area", b"\xff\xff\xff" + struct.pack(">3i", 2**30, 0, 1)),
    "a MATLAB type out of bounds": lambda: ("a.mat", _mat(65_535, 819_840, bytes(819_840))),
    "MATLAB data of 4 GB": lambda: ("a.mat", _mat(9, 2**32 - 1)),
    "MATLAB data of other size": lambda: ("a.mat", _mat(9, 8, bytes(8))),
    "XML entities": lambda: (
        "a.gii",
        _gii('<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>', "&b;"),
    ),
    "XML attributes by default": lambda: ("a.gii", _gii('<!DOCTYPE x [<!ATTLIST M F CDATA "A">]>')),
    "an XML entity that is a file": lambda: (
        "a.gii",
        _gii('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>', "&e;"),
    ),
    "elements without end": lambda: ("a.gii", _gii(inside="<MD/>" * 300_000)),
    "values without end": lambda: (
        "a.gii",
        _gii(inside="<MD><Name>a</Name><Value>" + "A" * 2**24 + "</Value></MD>"),
    ),
    "1 GB in a GIFTI": lambda: ("a.gii", _gii(data=_zeros(10**9))),
    "many small arrays": lambda: ("a.gii", _gii(n=5 * 10**6, data=_zeros(2 * 10**7)) * 60),
    "data in another file": lambda: (
        "a.gii",
        _gii().replace(b"GZipBase64Binary", b'ExternalFileBinary" ExternalFileName="/etc/passwd'),
    ),
    "a million columns": lambda: ("a.csv", b"1," * 2**24),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_files_that_do_harm_are_refused_in_little_memory(bomb: str, tmp_path: Path) -> None:
    from hostile.limits import outcome_of

    name, content = BOMBS[bomb]()
    (tmp_path / name).write_bytes(content)
    del content
    verdict, message = outcome_of(lambda: read_maps(tmp_path / name), tmp_path)
    assert verdict == "refused", (verdict, message)


def test_the_name_of_a_dtd_elsewhere_is_no_harm(tmp_path: Path) -> None:
    path = write_gifti(tmp_path / "a.shape.gii", X)
    text = path.read_text()
    start = text.index("<GIFTI")
    dtd = '<!DOCTYPE GIFTI SYSTEM "http://www.nitrc.org/frs/download.php/115/gifti.dtd">'
    path.write_text(f'<?xml version="1.0"?>{dtd}{text[start:]}')
    np.testing.assert_array_equal(parts_of(path)["left"], X)


@pytest.mark.parametrize(
    "name", ["a.mgh", "a.mgz", "B64GZ.shape.gii", "a.dscalar.nii", "a.npz", "a.npy", "a.mat"]
)
def test_every_truncation_is_noticed(tmp_path: Path, name: str) -> None:
    FORMATS[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    if name == "a.mgh":
        # What follows the data is not needed.
        content = content[: 284 + X.nbytes]
    for length in np.linspace(0, len(content) - 1, 40, dtype=int):
        (tmp_path / name).write_bytes(content[:length])
        assert_refused(tmp_path / name)


@pytest.mark.skipif(shutil.which("wb_command") is None, reason="wb_command is not installed")
def test_files_that_workbench_writes(tmp_path: Path) -> None:
    run = lambda *words: subprocess.run(
        ["wb_command", *words], cwd=tmp_path, check=True, capture_output=True
    )
    write_gifti(tmp_path / "left.func.gii", X, "left", NAMES)
    write_gifti(tmp_path / "roi.shape.gii", CORTEX["left"].astype(float), "left")
    left = ("-left-metric", "left.func.gii", "-roi-left", "roi.shape.gii")
    run("-cifti-create-dense-scalar", "x.dscalar.nii", *left)
    run("-cifti-create-dense-timeseries", "x.dtseries.nii", *left, "-timestep", "0.72")
    expected = np.where(CORTEX["left"], X, np.float32(np.nan))
    for name in ("x.dscalar.nii", "x.dtseries.nii"):
        np.testing.assert_array_equal(parts_of(tmp_path / name)["left"], expected)
    run("-file-convert", "-cifti-version-convert", "x.dscalar.nii", "1", "old.dscalar.nii")
    assert_refused(tmp_path / "old.dscalar.nii")
