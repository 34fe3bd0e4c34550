"""A changed bit in a store or a model is refused by the file's name, or changes nothing."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.stores import cohort
from icofactor.cli import main
from icofactor.cohort.store import append_store, compact_store, open_store, save_store
from icofactor.errors import FileError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.estimator.saving import load_model
from icofactor.io.records import read_sealed

State = str
"""As text, where NaN equals itself."""


def _fit(data: Any) -> CorticalFactorization:
    return CorticalFactorization(2, n_starts=2, level=1, random_state=0, method="LE-PNNMF").fit(
        data
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("integrity")
    save_store(cohort(12), folder / "store")
    append_store(folder / "store", cohort(3, 12))
    _fit(cohort(12)).save(folder / "model.zip")
    return folder


def _flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _flat(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_flat(item) for item in value]
    if isinstance(value, str | int | float | bool | None):
        return value
    if hasattr(value, "__dict__"):
        return _flat(vars(value))
    return np.asarray(value).tolist()


def read_store(folder: Path) -> State:
    """Everything that a store says."""
    stored = open_store(folder / "store")
    fields = {
        name: getattr(stored, name)
        for name in ("subjects", "hemisphere", "modality", "units", "provenance")
    }
    sites = {
        name: getattr(stored.sites, name)
        for name in ("coordinates", "triangles", "deepest", "name", "level")
    }
    arrays = {"X": np.asarray(stored.X), "mask": stored.mask, "order": stored.order}
    return json.dumps(
        _flat({**fields, **arrays, "sites": sites, "participants": dict(stored.participants)})
    )


def read_model(folder: Path) -> State:
    """Everything that a model holds."""
    model = load_model(folder / "model.zip")
    attributes = {
        name: value for name, value in vars(model).items() if name.endswith("_") or name == "method"
    }
    return json.dumps(_flat(attributes))


READ: dict[str, Callable[[Path], State]] = {"store": read_store, "model.zip": read_model}


def _files(place: Path) -> list[Path]:
    return (
        sorted(file for file in place.rglob("*") if file.is_file()) if place.is_dir() else [place]
    )


def _flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def _check(folder: Path, kind: str, file: Path, bit: int, before: State) -> bool:
    """Whether a changed bit is refused; if not, it must not matter."""
    whole = file.read_bytes()
    _flip(file, bit)
    try:
        assert READ[kind](folder) == before, f"bit {bit} of {file} changes what is read"
        return False
    except FileError as refusal:
        assert Path(refusal.path) in (file, *file.parents), f"bit {bit} of {file}: {refusal}"
        assert Path(refusal.path) != folder
        assert len(str(refusal).splitlines()) == 1
        return True
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("kind", READ)
def test_one_changed_bit_in_every_file(made: Path, kind: str) -> None:
    before, rng = READ[kind](made), np.random.default_rng(0)
    refused = [
        _check(made, kind, file, int(rng.integers(8 * file.stat().st_size)), before)
        for file in _files(made / kind)
    ]
    assert np.mean(refused) > 0.8  # the rest of a zip's bytes, and white space, mean nothing


@pytest.mark.slow
@pytest.mark.parametrize("kind", READ)
def test_hundreds_of_changed_bits(made: Path, kind: str) -> None:
    before, rng, files = READ[kind](made), np.random.default_rng(1), _files(made / kind)
    refused = [
        _check(made, kind, file, int(bit), before)
        for file in files
        for bit in rng.integers(8 * file.stat().st_size, size=-(-200 // len(files)))
    ]
    assert len(refused) >= 200 and np.mean(refused) > 0.8


@pytest.mark.parametrize("age", ["all", "one digit"])
def test_a_changed_table_is_one_line(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], age: str
) -> None:
    """The digit of an age is valid JSON, and is not the age that was stored."""
    shutil.copytree(made / "store", tmp_path / "store")
    file = tmp_path / "store" / "commit.json"
    record = json.loads(file.read_text())
    values = record["participants"]["age"]["values"]
    values[3 if age == "one digit" else slice(None)] = (
        50.5 if age == "one digit" else [50.5] * len(values)
    )
    file.write_text(json.dumps(record))
    assert main(["fit", str(tmp_path / "store"), "-o", str(tmp_path / "out"), "-q"]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert (
        "commit.json: is damaged: its checksum is wrong. Copy the cohort store again, or write it again"
        in message
    )


def test_exchanged_chunks_are_refused(tmp_path: Path) -> None:
    """Each is whole and has the right checksum behind it, but not in its place."""
    from icofactor.cohort.store.create import create_store

    create_store(tmp_path / "a", [cohort(4)], chunk_sites=107)
    first, second = sorted((tmp_path / "a").glob("part-*/c/*/0"))[:2]
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    with pytest.raises(FileError, match="not the chunk in the commit") as refusal:
        np.asarray(open_store(tmp_path / "a").X)
    assert refusal.value.path == str(first)


def test_a_lost_mask_is_not_a_store_without_one(tmp_path: Path) -> None:
    save_store(cohort(), tmp_path / "a")
    shutil.rmtree(next((tmp_path / "a").glob("mesh-*/mask")))
    with pytest.raises(FileError, match="is missing") as refusal:
        open_store(tmp_path / "a")
    assert refusal.value.path.endswith("mask/zarr.json")


def _everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in _files(folder)}


def _timeless(folder: Path) -> dict[str, Any]:
    """Every file, without the times and the memory that a run records."""
    found: dict[str, Any] = dict(_everything(folder))
    for name in found:
        if name == "commit.json":
            record = json.loads(found[name])
            assert {step.pop("time")[:2] for step in record["steps"]} == {"20"}
            found[name] = {
                key: value for key, value in record.items() if key != "checksum"
            }  # of the times too
        elif name == "diagnostics.npz":
            header, arrays = read_sealed(folder / name)
            del header["content"]["timing"], header["content"]["memory"]
            found[name] = header, {key: array.tobytes() for key, array in arrays.items()}
        elif name == ".icofactor-files.json":
            record = json.loads(found[name])
            # hashes of times
            record["files"] |= dict.fromkeys(("diagnostics.npz", "report.html"))
            found[name] = record
        elif name == "report.html":
            found[name] = re.sub(rb"<dt>(time|memory at most)</dt><dd>[^<]*</dd>", b"", found[name])
            assert len(found[name]) < (folder / name).stat().st_size
    return found


def test_equal_runs_write_equal_bytes(tmp_path: Path) -> None:
    """Maps are prepared and fitted, twice."""
    data = cohort(12)
    np.savez(
        tmp_path / "maps.npz",
        X=data.X,
        subjects=np.array(data.subjects),
        age=data.participants["age"],
    )
    for name in ("one", "two"):
        place = tmp_path / name
        place.mkdir()
        prepare = [
            "prepare",
            str(tmp_path / "maps.npz"),
            "-o",
            str(place / "store"),
            "--hemisphere",
            "left",
        ]
        fit = [
            "fit",
            str(tmp_path / "one" / "store"),
            "-o",
            str(place / "out"),
            "--n-components",
            "2",
        ]
        assert main([*prepare, "-q"]) == 0
        assert main([*fit, "--no-figures", "-q"]) == 0
    for part in ("store", "out"):
        one, two = _timeless(tmp_path / "one" / part), _timeless(tmp_path / "two" / part)
        assert [name for name in one | two if one.get(name) != two.get(name)] == []
        assert one


def test_appended_and_compacted_stores_are_equal_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_store(cohort(5), tmp_path / name)
        append_store(tmp_path / name, cohort(2, 5))
    assert _timeless(tmp_path / "one") == _timeless(tmp_path / "two")
    for name in ("one", "two"):
        compact_store(tmp_path / name)
    assert _timeless(tmp_path / "one") == _timeless(tmp_path / "two")


def test_the_identity_of_a_store_is_that_of_its_cohort(tmp_path: Path) -> None:
    stored = [save_store(cohort(n), tmp_path / name) for n, name in ((5, "a"), (5, "b"), (6, "c"))]
    one, same, other = (each.identity for each in stored)
    assert one == same != other
