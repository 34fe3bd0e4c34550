"""Names, cells and words from outside: shown everywhere, acting nowhere; tables that are written are read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.stores import cohort, edit
from icofactor.cli.main import main
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import open_store
from icofactor.cohort.subjects import read_participants
from icofactor.errors import (
    COHORT_ARGUMENTS,
    UNSAFE,
    ArgumentError,
    CohortError,
    FileError,
    escaped,
)
from icofactor.io import json as json_reader
from icofactor.io import tables
from icofactor.io.guard import Unreadable
from icofactor.io.json import read_json, read_text
from icofactor.io.maps import read_labels
from icofactor.io.tables import read_table, write_json, write_tsv
from icofactor.sphere.sites import Sites

SITES = Sites.named("fsaverage3")
CONTROLS = (
    "\0",
    "\x07",
    "\x1b[31m",
    "\v",
    "\x85",
    "\u2028",
    "\u202e",
    "\u2066",
    "\ud800",
    "\ufeff",
)
pytestmark = pytest.mark.hostile


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31m\nb", r"a\x1b[31m\x0ab"),
        ("\u202ecba\u2028", r"\u202ecba\u2028"),
        (os.fsdecode(b"caf\xe9"), r"caf\xe9"),
        ("日本 naïve \U0001f600 a\u00a0b", "日本 naïve \U0001f600 a\u00a0b"),
    ],
)
def test_what_would_act_is_shown(text: str, shown: str) -> None:
    assert escaped(text) == shown
    assert str(FileError(text, "is wrong")) == f"{shown}: is wrong"
    assert shown in str(CohortError("x", f"is not {text}"))


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("place", ["subjects", "column", "cell", "modality", "units"])
def test_a_cohort_has_no_control_characters(control: str, place: str) -> None:
    word = f"a{control}b"
    given: dict[str, Any] = {
        "subjects": {"subjects": ("a", word)},
        "column": {"participants": {word: [1, 2]}},
        "cell": {"participants": {"site": np.array(["x", word])}},
        "modality": {"modality": word},
        "units": {"units": word},
    }[place]
    with pytest.raises(ArgumentError) as caught:
        Cohort(
            np.ones((2, SITES.n), dtype=np.float32),
            **{"subjects": ("a", "b"), "sites": SITES, **given},
        )
    assert caught.value.argument == {"column": "participants", "cell": "participants"}.get(
        place, place
    )
    assert not UNSAFE.search(str(caught.value))


@pytest.mark.parametrize("field", ["modality", "units", "column", "cell"])
def test_a_store_has_no_control_characters(tmp_path: Path, field: str) -> None:
    save_store(cohort(participants={"site": ["x"] * len(cohort().subjects)}), tmp_path / "s")

    def change(commit: Any, metadata: Any) -> None:
        if field in commit:
            commit[field] = "<script>\x1b[31m\n"
            return
        site = commit["participants"].pop("site")
        site[0] = "\u202e" if field == "cell" else "x"
        commit["participants"]["site" if field == "cell" else "si\u2028te"] = site

    edit(tmp_path / "s", change)
    with pytest.raises(CohortError, match="control characters"):
        open_store(tmp_path / "s")


def test_names_of_regions_are_escaped(tmp_path: Path) -> None:
    import nibabel as nib

    keys = np.arange(20, dtype=np.int32) % 2
    colours = np.array([[25, 5, 25, 0, 0], [25, 100, 40, 0, 0]])
    file = tmp_path / "lh.annot"
    nib.freesurfer.write_annot(file, keys, colours, ["none", "a\u202eb\nc"], fill_ctab=True)
    (_, names), *_ = read_labels(file).values()
    assert names[1] == r"a\u202eb\x0ac"


# ---------------------------------------------------------------------- tables

CELL = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).filter(
    lambda text: not UNSAFE.search(text)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=1, max_size=5))
def test_every_table_that_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any]
) -> None:
    path = tmp_path_factory.mktemp("tables") / "a.tsv"
    columns = {name: [row[i] for row in rows] for i, name in enumerate(('"x"', "=y", "é,'"))}
    write_tsv(path, columns)
    found, _ = read_table(path)
    assert found == {
        name: [cell.strip() or "n/a" for cell in cells] for name, cells in columns.items()
    }


def test_quoted_line_breaks_are_spaces(tmp_path: Path) -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {"participant_id": ["a", "b"], "note": ["one\ntwo", "three\tfour\r\nfive"]}
    )
    frame.to_csv(tmp_path / "p.tsv", sep="\t", index=False)
    table = read_participants(tmp_path / "p.tsv")
    assert table is not None and table.columns["note"].tolist() == ["one two", "three four five"]


@pytest.mark.parametrize("control", ["\x07", "\x1b[31m", "\u202e", "\u2066"])
@pytest.mark.parametrize("line", ["a\tx{0}y\n", "a\t1\nx{0}\t2\n"])
def test_a_table_with_control_characters_is_refused(
    tmp_path: Path, control: str, line: str
) -> None:
    (tmp_path / "p.tsv").write_text("participant_id\tn\n" + line.format(control), encoding="utf-8")
    with pytest.raises(CohortError) as caught:
        read_participants(tmp_path / "p.tsv")
    assert "control character" in caught.value.problem and not UNSAFE.search(caught.value.problem)


@pytest.mark.parametrize("cell", ["-inf", "inf", "Infinity", "1e999"])
def test_infinite_cells_are_refused(tmp_path: Path, cell: str) -> None:
    (tmp_path / "p.tsv").write_text(f"participant_id\tage\na\t{cell}\nb\t2\n")
    with pytest.raises(CohortError) as caught:
        read_participants(tmp_path / "p.tsv")
    assert "'age'" in caught.value.problem and "subject a" in caught.value.problem
    with pytest.raises(ArgumentError, match="finite or missing"):
        Cohort(np.ones((2, SITES.n)), ("a", "b"), SITES, participants={"age": [float(cell), 2.0]})


# ---------------------------------------------------------------------- limits


@pytest.mark.parametrize(
    "text",
    [
        "id\n" + "a\n" * 200,
        "\t".join(f"c{i}" for i in range(10_001)),
        "id\n" + "a" * 300,
        "id\n" + "a" * 90_000,
    ],
)
def test_tables_are_bounded_before_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    for name, limit in (("MAX_CELLS", 100), ("MAX_CELL", 200), ("MAX_LINE", 80_000)):
        monkeypatch.setattr(tables, name, limit)
    (tmp_path / "a.tsv").write_text(text)
    with pytest.raises(Unreadable):
        read_table(tmp_path / "a.tsv")


def test_texts_and_json_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "MAX_VALUES", 100)
    for text in ("[" + "[]," * 30 + "1]", "[" + "1," * 200 + "1]"):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(Unreadable):
            read_json(tmp_path / "a.json")
        with pytest.raises(Unreadable):
            read_text(tmp_path / "a.json", 90)


def test_json_is_escaped_and_read_back(tmp_path: Path) -> None:
    written = {"a\u202e": "b\u2028\x7f\U000e0041\n", "path": Path(os.fsdecode(b"caf\xe9"))}
    text = write_json(tmp_path / "a.json", written).read_text(encoding="utf-8")
    assert not UNSAFE.search(text.replace("\n", ""))
    assert json.loads(text) == {"a\u202e": "b\u2028\x7f\U000e0041\n", "path": r"caf\xe9"}


# ---------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\x1b]0;title\x07\nb.npz", r"a\x1b]0;title\x07\x0ab.npz"),
        (b"a mask=x.npz", "a mask=x.npz"),
        (b"caf\xe9.npz", r"caf\xe9.npz"),
        ("\u202egnp.npz".encode(), r"\u202egnp.npz"),
    ],
)
def test_names_of_files_are_shown_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: bytes, shown: str
) -> None:
    file = tmp_path / os.fsdecode(name)
    file.write_bytes(b"no such thing")
    assert main(["fit", str(file), "-o", str(tmp_path / "o"), "-q"]) == 2
    said = capsys.readouterr().err
    assert shown in said and said.count("\n") == 1 and not UNSAFE.search(said.strip("\n"))


@pytest.mark.parametrize("name", COHORT_ARGUMENTS)
def test_a_path_that_reads_like_an_option_is_shown_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    surf = Path(name, "s1", "surf")
    surf.mkdir(parents=True)
    for fwhm in (5, 10):
        (surf / f"lh.thickness.fwhm{fwhm}.fsaverage3.mgh").touch()
    assert main(["fit", name, "-o", "o", "-q"]) == 2
    assert capsys.readouterr().err.startswith(f"icofactor fit: ./{name}: ")


def test_very_long_names_are_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "x" * 5000 + ".npz", "-o", str(tmp_path / "o"), "-q"]) == 2
    assert len(capsys.readouterr().err) < 600


@pytest.mark.slow
def test_paths_that_are_not_utf8_work_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = Path(os.fsdecode(b"caf\xe9"))
    place.mkdir()
    maps, table, mask = (
        str(place / os.fsdecode(name)) for name in (b"m\xe9.npz", b"p\xe9.tsv", b"lh.m\xe9.npy")
    )
    X = np.random.default_rng(0).gamma(2, 1, (8, SITES.n)) + 1
    with open(maps, "wb") as file:
        np.savez(file, x=X.astype(np.float32), subjects=[f"s{i}" for i in range(8)])
    Path(table).write_text("participant_id\tage\n" + "".join(f"s{i}\t{i}\n" for i in range(8)))
    np.save(mask, np.arange(SITES.n) % 9 > 0)
    place = os.fsdecode(b"caf\xe9")
    read = f"--mesh fsaverage3 --hemisphere left --participants {table} -q".split()
    small = ["--n-components", "2", "--n-starts", "1", "--no-figures", "--covariates", "age"]
    out = str(Path(place, os.fsdecode(b"o\xe9")))
    assert main(["fit", maps, "--mask", mask, *read, *small, "-o", out]) == 0
    assert r"caf\\xe9/m\\xe9.npz" in Path(out, "provenance.json").read_text(encoding="utf-8")
    # The page names no input's path.
    assert "xe9.npz" not in Path(out, "report.html").read_text(encoding="utf-8")
    assert main(["prepare", maps, *read, "-o", f"{place}/store"]) == 0
    assert main(["fit", f"{place}/store", *small, "-o", "again", "-q"]) == 0
    new = os.fsdecode(b"caf\xe9/n\xe9w.tsv")
    assert main(["transform", out, maps, "--participants", table, "-o", new, "-q"]) == 0
    assert main(["report", out, "-o", "page", "-q"]) == 0
