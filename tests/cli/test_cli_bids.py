"""`icofactor-bids`: the command line of BIDS Apps, on trees as fMRIPrep and XCP-D leave them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from helpers.trees import fmriprep_tree, hemispheres, names
from icofactor.cli import bids
from icofactor.cli.main import _options
from icofactor.cohort import simulate_cohort
from icofactor.io.tables import read_table

N = 8


@pytest.fixture
def derivatives(tmp_path: Path) -> Path:
    """ReHo at rest, and of a task, on both hemispheres."""
    cohort = simulate_cohort(N, 2, "reho", "both", mesh="fsaverage3")
    root, maps = tmp_path / "xcp_d", hemispheres(cohort.X)
    fmriprep_tree(root, names(N), maps, "task-rest", "space-fsaverage3")
    return fmriprep_tree(root, names(N), maps, "task-nback", "space-fsaverage3")


def subjects(folder: Path) -> list[str]:
    columns, _ = read_table(folder / "desc-icofactor_loadings.tsv")
    return columns["participant_id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "expected"),
    [([], names(N)), (["005", "sub-002", "001", "003", "004", "006"], names(6))],
)
def test_a_group_is_fitted(
    derivatives: Path, tmp_path: Path, labels: list[str], expected: list[str]
) -> None:
    people = ["--participant-label", *labels] if labels else []
    words = f"{derivatives} {tmp_path}/out group --measure reho --task-label rest"
    options = "--n-components 2 --no-figures --quiet"
    assert bids.main([*words.split(), *options.split(), *people]) == 0
    assert sorted(subjects(tmp_path / "out")) == expected
    assert (tmp_path / "out" / "report.html").is_file()


def test_it_is_a_fit(derivatives: Path, tmp_path: Path) -> None:
    words = f"{derivatives} OUT group --participant_label 01 --session-label ses-1 --level 1"
    (derivatives / "sub-01").mkdir()
    options = _options(bids.as_fit(words.split()))
    assert (options.command, options.out, options.level) == ("fit", Path("OUT"), 1)
    assert options.inputs == [str(derivatives / "sub-01")] and options.entities == {"ses": "1"}


def test_labels_and_entities_choose_together(derivatives: Path) -> None:
    words = f"{derivatives} OUT group --task-label rest --entities run=1,desc=denoised"
    entities = _options(bids.as_fit(words.split())).entities
    assert entities == {"task": "rest", "run": "1", "desc": "denoised"}


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        ("group --measure alff", "alff"),
        ("group --bogus 3", "--bogus"),
        ("participant", "group"),
        ("nothing", "group"),
        ("group --participant-label 001 nobody", "sub-nobody"),
    ],
)
def test_what_is_refused(
    derivatives: Path, words: str, subject: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors begin with the name of the program."""
    with suppress(SystemExit):
        assert bids.main([str(derivatives), "OUT", *words.split()]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith("icofactor-bids: ") and subject in message


def test_series_alone_name_the_command_that_computes_maps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maps = hemispheres(simulate_cohort(2, 2, "reho", "both", mesh="fsaverage3").X)
    fmriprep_tree(
        tmp_path / "fmriprep", names(2), maps, "task-rest", "space-fsaverage3", "bold.func"
    )
    words = f"{tmp_path}/fmriprep {tmp_path}/out group --measure reho"
    assert bids.main(words.split()) == 2
    assert "icofactor prepare reho" in capsys.readouterr().err


def test_the_table_of_the_dataset_is_used_for_all_participants(derivatives: Path) -> None:
    table = derivatives / "participants.tsv"
    table.write_text("participant_id\n" + "\n".join(names(N)))
    assert _options(bids.as_fit([str(derivatives), "OUT", "group"])).participants == table
    two_people = [str(derivatives), "OUT", "group", "--participant-label", "001", "002"]
    assert _options(bids.as_fit(two_people)).participants is None
