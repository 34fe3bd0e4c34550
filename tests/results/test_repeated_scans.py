"""People with several scans, from the maps to tables, text and page; families; what they share with plain cohorts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kstest

import icofactor as ico
from helpers.refusals import refused
from helpers.trees import freesurfer_tree
from icofactor.assessment.bootstrap import bootstrap
from icofactor.assessment.selection.nulls import spun_cohort
from icofactor.cli.main import main
from icofactor.cohort.people import RowGroups, choose_scans
from icofactor.cohort.store.create import save_store
from icofactor.io.tables import read_table
from icofactor.results.associations import FittedLoadings, write_associations
from icofactor.results.description import read_fit
from icofactor.results.diagnostics.participants import compare

LOADINGS, PARTICIPANTS = "desc-icofactor_loadings.tsv", "desc-icofactor_participants.tsv"
N, VISITS = 12, 2


@pytest.fixture(scope="module")
def scans() -> ico.Cohort:
    """12 people, two scans each, the second first; two people per family."""
    one = ico.simulate_cohort(N, 2, mesh="fsaverage3", hemisphere="left", random_state=0)
    rng = np.random.default_rng(0)
    X = np.concatenate([one.X * np.float32(1.02), one.X]) + rng.normal(
        0, 1e-3, (VISITS * N, one.sites.n)
    )
    table = {
        "participant_id": np.tile(one.subjects, VISITS),
        "session_id": np.repeat(["ses-2", "ses-1"], N),
        "family": np.tile([f"f{i // 2}" for i in range(N)], VISITS),
        "sex": np.tile(one.participants["sex"], VISITS),
        "age": np.concatenate([one.participants["age"] + 1, one.participants["age"]]),
    }
    names = [
        f"{name}_{session}"
        for name, session in zip(table["participant_id"], table["session_id"], strict=True)
    ]
    return replace(
        one,
        X=X.astype(np.float32),
        subjects=tuple(names),
        participants=table,
        truth=None,
        checked=True,
    )


def model() -> ico.CorticalFactorization:
    return ico.CorticalFactorization(2, n_starts=3, level=1, random_state=0)


@pytest.fixture(scope="module")
def fitted(scans: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("repeated") / "out"
    result = ico.fit_cohort(
        scans, model(), out, fit_on="baseline", groups="family", covariates=["sex"], figures=False
    )
    assert "24 scans of 12 people; fitted on the first scan of each person." in result.found()
    return out


def test_baseline_is_fitted_and_the_others_transformed(scans: ico.Cohort, fitted: Path) -> None:
    found = ico.load_model(fitted)
    alone = model().fit(ico.Covariates.fit(scans[N:], ["sex"], nonnegative=False).apply(scans[N:]))
    np.testing.assert_array_equal(found.components_, alone.components_)
    table, _ = read_table(fitted / LOADINGS)
    assert list(table) == ["participant_id", "session_id", "component01", "component02"]
    assert table["participant_id"] == list(scans.participants["participant_id"])
    assert table["session_id"] == list(scans.participants["session_id"])
    loadings = np.array([table["component01"], table["component02"]], dtype=float).T
    np.testing.assert_allclose(loadings[N:], alone.loadings_, rtol=1e-8)
    np.testing.assert_allclose(loadings[:N], alone.transform(scans[:N]), rtol=1e-8)
    people, _ = read_table(fitted / PARTICIPANTS)
    assert people["fitted"] == ["0"] * N + ["1"] * N
    np.testing.assert_array_equal(np.array(people["age"], float), scans.participants["age"])


def test_provenance_says_which_scans_were_fitted(fitted: Path) -> None:
    record = json.loads((fitted / "provenance.json").read_text())["scans"]
    counts = {"n_scans": 24, "n_people": 12, "n_fitted": 12, "n_groups": 6}
    assert {"fit_on": "baseline", "groups": "family", **counts}.items() <= record.items()


def test_associations_of_all_scans_keep_what_the_fit_kept_together(
    fitted: Path, tmp_path: Path
) -> None:
    source = FittedLoadings.read(fitted)
    assert source.loadings.shape == source.model.loadings_.shape == (24, 2)
    settings = lambda **more: (
        write_associations(
            fitted, tmp_path / str(len(more)), "age", n_permutations=99, **more
        ).associations.settings
    )  # type: ignore[union-attr]
    assert (settings()["n_rows"], settings(groups="participant_id")["n_groups"]) == (24, 12)
    assert json.loads((tmp_path / "0" / "associations.json").read_text())["n_groups"] == 6


def test_stores_give_the_same(scans: ico.Cohort, fitted: Path, tmp_path: Path) -> None:
    stored = save_store(scans, tmp_path / "store")
    ico.fit_cohort(
        stored,
        model(),
        tmp_path / "out",
        fit_on="baseline",
        order="age",
        covariates=["sex"],
        figures=False,
    )
    held, _ = read_table(fitted / LOADINGS)
    found, _ = read_table(tmp_path / "out" / LOADINGS)
    assert found["participant_id"] == held["participant_id"]
    for name in ("component01", "component02"):
        np.testing.assert_allclose(
            np.array(found[name], float), np.array(held[name], float), rtol=1e-6
        )
    assert "the first scan of each person by age" in (tmp_path / "out" / "methods.md").read_text()


def test_what_is_refused_before_the_fit(scans: ico.Cohort, tmp_path: Path) -> None:
    with refused("fit_on", "24 scans of 12 people"):
        ico.fit_cohort(scans, model(), tmp_path / "out", figures=False)
    changed = {**scans.participants, "site": ["c"] + ["a", "b"] * 11 + ["a"]}
    with refused("covariates", "'site' is c in subject sub-0001_ses-2; the fit had only a, b"):
        ico.fit_cohort(
            replace(scans, participants=changed),
            model(),
            tmp_path / "out",
            fit_on="baseline",
            covariates=["site"],
        )
    with refused("fit_on", "24 scans of 12 people"):
        ico.choose_n_components(scans, [2])
    assert not (tmp_path / "out").exists()


def test_selection_by_people(scans: ico.Cohort) -> None:
    given = {"n_splits": 2, "n_starts": 2, "n_nulls": 5, "level": 1}
    first = ico.choose_n_components(scans, [2], fit_on="baseline", **given)
    plain = replace(scans[N:], participants={})
    alone = ico.choose_n_components(plain, [2], **given)
    for name, values in alone.table.items():  # one scan per person: as ever, to the bit
        np.testing.assert_array_equal(first.table[name], values)
    assert first.settings["n_people"] == 12
    everyone = ico.choose_n_components(scans, [2], fit_on="all", groups="family", **given)
    assert (everyone.settings["groups"], everyone.settings["n_groups"]) == ("family", 6)
    arrays = ico.choose_n_components(
        scans.X, [2], groups=scans.participants["family"], mesh="fsaverage3", hemi="left", **given
    )
    np.testing.assert_array_equal(arrays.table["agreement"], everyone.table["agreement"])
    with refused("ranks"):
        ico.choose_n_components(scans, [2, 4], fit_on="all", groups="family", **given)


def test_fitting_all_scans_as_asked_for_is_not_warned_of(scans: ico.Cohort, tmp_path: Path) -> None:
    done = ico.fit_cohort(scans, model(), tmp_path / "out", fit_on="all", figures=False)
    assert not done.warnings


def test_resamples_by_people(scans: ico.Cohort, tmp_path: Path) -> None:
    plain = replace(scans[N:], participants={})
    fit = model().fit(plain)
    alone, among = bootstrap(fit, plain, 3), bootstrap(fit, scans, 3, fit_on="baseline")
    np.testing.assert_array_equal(alone.component_se, among.component_se)
    families = bootstrap(fit, scans, 3, fit_on="baseline", groups="family")
    assert not np.array_equal(alone.component_se, families.component_se)
    with refused("fit_on", "24 scans of 12 people"):
        bootstrap(fit, scans, 3)
    with pytest.warns(
        UserWarning,
        match=r"several times in this fit \(24 scans of 12 people\): fit one scan per person",
    ):
        both = model().fit(scans)
    spread = bootstrap(both, scans, 3)
    people = choose_scans(scans, "all").people
    assert people is not None
    spread.save(tmp_path, both, people)
    assert list(read_table(tmp_path / "loadings_se.tsv")[0])[:2] == ["participant_id", "session_id"]


def test_nulls_turn_scans_of_a_person_together(scans: ico.Cohort) -> None:
    from icofactor.assessment.selection.data import gather
    from icofactor.factorization.methods import method_named

    twice = replace(scans, X=np.concatenate([scans.X[:N], scans.X[:N]]))
    data = gather(twice, 1, method_named("parts"), None, "mean")
    seed, groups = np.random.SeedSequence(0), RowGroups.of(list(range(N)) * 2)
    turned = spun_cohort(data, seed, True, groups).L
    np.testing.assert_array_equal(turned[:N], turned[N:])
    alone = spun_cohort(data, seed, True).L
    np.testing.assert_array_equal(
        spun_cohort(data, seed, True, RowGroups.of(range(2 * N))).L, alone
    )
    assert not np.array_equal(alone[:N], alone[N:])


@pytest.mark.parametrize("column", ["trait", "visit", "arm"])
def test_p_values_of_the_page_are_those_of_a_loop(column: str) -> None:
    """Groups of one, two and three rows, some of each: p over components, by shuffling group by group."""
    rng, sizes = np.random.default_rng(1), [1] * 6 + [2] * 8 + [3] * 5
    of = np.repeat(np.arange(len(sizes)), sizes)
    loadings = rng.normal(size=(len(sizes), 2))[of] + rng.normal(size=(len(of), 2))
    table = {
        "trait": rng.normal(size=len(sizes))[of],
        "visit": rng.normal(size=len(of)),
        "arm": np.array(["a", "b", "c"])[rng.integers(3, size=len(sizes))[of]],
    }
    values = table[column]
    loadings[:, 0] += 0.5 * (values == "a" if column == "arm" else values)
    found = compare({column: values}, loadings, 2000, groups=RowGroups.of(of.tolist()))
    p = found[column == "arm"][0].p

    def size_of(one: np.ndarray) -> np.ndarray:
        if column != "arm":
            return np.abs([np.corrcoef(one, loading)[0, 1] for loading in loadings.T])
        means = [
            (one == level).sum()
            * (loadings[one == level].mean(axis=0) - loadings.mean(axis=0)) ** 2
            for level in "abc"
        ]
        return np.asarray(
            np.sum(means, axis=0) / np.square(loadings - loadings.mean(axis=0)).sum(axis=0)
        )

    seen, reached = size_of(values), np.zeros(2)
    for _ in range(2000):
        moved = np.empty_like(values)
        for size in (1, 2, 3):
            groups = [g for g, n in enumerate(sizes) if n == size]
            for here, there in zip(groups, rng.permutation(groups), strict=True):
                rows = np.flatnonzero(of == there)
                moved[of == here] = values[rng.permutation(rows) if column == "visit" else rows]
        reached += size_of(moved).max() >= seen
    expected = (1 + reached) / 2001
    assert (
        np.abs(p - expected) < 5 * np.sqrt(2 * expected * (1 - expected) / 2000) + 1e-3
    ).all(), (p, expected)


def test_permutations_of_the_page_keep_people_whole() -> None:
    """Traits of people and loadings that differ between them: with groups p is uniform, without it is too small."""
    rng, p = np.random.default_rng(0), {True: [], False: []}
    people = np.repeat(np.arange(20), 4)
    for seed in range(500):
        loadings = rng.normal(size=(20, 1))[people] + 0.2 * rng.normal(size=(80, 1))
        table = {"trait": rng.normal(size=20)[people]}
        for grouped in p:
            groups = RowGroups.of(people.tolist()) if grouped else None
            p[grouped].append(compare(table, loadings, 99, seed, groups)[0][0].p[0])
    assert kstest(p[True], "uniform").pvalue > 0.01
    assert kstest(p[False], "uniform").pvalue < 1e-6 and np.mean(np.array(p[False]) < 0.05) > 0.2
    few = compare(
        {"trait": [1.0, 1, 2, 3, 3]},
        rng.normal(size=(5, 1)),
        99,
        groups=RowGroups.of([0, 0, 1, 2, 2]),
    )
    assert not few[0] and few[2]["trait"].startswith(
        "differs only between groups of rows, and too few groups"
    )


# ---------------------------------------------------------------------- the command line


def test_a_longitudinal_tree_from_the_command_line(
    scans: ico.Cohort, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    subjects = tmp_path / "subjects"
    longs = [
        f"{name}.long.{who}"
        for name, who in zip(scans.subjects, scans.participants["participant_id"], strict=True)
    ]
    freesurfer_tree(subjects, longs, {"left": scans.X}, target="fsaverage3")
    freesurfer_tree(subjects, list(scans.subjects[:3]), {"left": scans.X[:3]}, target="fsaverage3")
    begin = [
        "fit",
        str(subjects),
        "-o",
        str(tmp_path / "out"),
        "--n-components",
        "2",
        "--n-starts",
        "3",
        "-q",
    ]
    assert main(begin) == 2
    assert "--stream" in capsys.readouterr().err
    assert main([*begin, "--stream", "long"]) == 2
    assert "--sessions all" in capsys.readouterr().err
    assert main([*begin, "--stream", "long", "--sessions", "all"]) == 2
    assert "--fit-on" in capsys.readouterr().err
    whole = [*begin, "--stream", "long", "--fit-on", "baseline"]
    assert main([*whole, "--order", "age"]) == 2
    assert "--order" in capsys.readouterr().err
    assert main([*whole, "--no-figures"]) == 0
    table, _ = read_table(tmp_path / "out" / LOADINGS)
    assert len(table["session_id"]) == 24 and set(table["session_id"]) == {"1", "2"}
    out = ["-o", str(tmp_path / "out"), "-q"]
    select = [
        "select",
        str(subjects),
        "--stream",
        "long",
        "--fit-on",
        "baseline",
        "--model",
        str(tmp_path / "out"),
    ]
    assert main([*select, "--bootstrap", "2", *out]) == 0
    errors, _ = read_table(tmp_path / "out" / "loadings_se.tsv")
    assert set(errors["session_id"]) == {"1"}
    errors_read = read_fit(tmp_path / "out").selection.loading_se
    assert errors_read is not None and errors_read.shape == (12, 2)
    assert main([*select[:4], "--fit-on", "all", "--ranks", "2-9", *out]) == 2
    assert "--ranks" in capsys.readouterr().err
