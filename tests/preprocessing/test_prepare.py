"""`prepare` on a tree that imitates the HCP's: the maps, failures, resuming, and the whole way to components."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

import nibabel
import numpy as np
import pytest

import icofactor.preprocessing._prepare_hcp as module
from helpers.commands import run_cli
from helpers.hcp_tree import TR, HcpMaker, N, columns_of, write_cifti
from helpers.refusals import refused
from icofactor.cohort.store.read import open_store
from icofactor.errors import CohortError
from icofactor.preprocessing import alff, reho
from icofactor.preprocessing._prepare_hcp import Prepared, Target, prepare_hcp
from icofactor.preprocessing.hcp import find_inputs
from icofactor.preprocessing.outliers import limit_outliers
from icofactor.preprocessing.resampling import fs_lr_to_fsaverage
from icofactor.preprocessing.subject_maps import Steps, fill_from_neighbours
from icofactor.preprocessing.temporal import bandpass, concatenate_runs
from icofactor.results.provenance import input_hashes
from icofactor.sphere.hierarchy import icosphere
from icofactor.sphere.surfaces import read_surface

RUNS = ("rfMRI_REST1_LR", "rfMRI_REST1_RL")
NAMES = ("100307", "100408", "101107")


@pytest.fixture(scope="module", autouse=True)
def weights_are_made_once() -> Iterator[None]:
    """The same few projections serve all tests; making them is what costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "projections", cache(module.projections))
        patch.setattr(module, "atlas_cortex", cache(module.atlas_cortex))
        yield


@pytest.fixture(scope="module")
def maker(data_folder: Path) -> HcpMaker:
    return HcpMaker(data_folder, n_volumes=120)


@pytest.fixture(scope="module")
def tree(maker: HcpMaker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hcp") / "tree"
    for seed, name in enumerate(NAMES):
        maker.subject(folder, name, RUNS, seed)
    (folder / "release-notes").mkdir()
    return folder


@pytest.fixture
def spheres(data_folder: Path) -> Path:
    return data_folder / "resample"


def series_file(tree: Path, name: str, run: str = RUNS[0]) -> Path:
    return (
        tree
        / name
        / "MNINonLinear"
        / "Results"
        / run
        / f"{run}_Atlas_MSMAll_hp2000_clean.dtseries.nii"
    )


def map_file(tree: Path, name: str, kind: str = "thickness_MSMAll") -> Path:
    return tree / name / "MNINonLinear" / "fsaverage_LR32k" / f"{name}.{kind}.32k_fs_LR.dscalar.nii"


def by_nibabel(file: Path) -> dict[str, np.ndarray]:
    """Side → (n_maps, 32492), zero off the cortex."""
    image = nibabel.load(file)
    data = image.get_fdata()
    maps = {}
    for name, columns, model in image.header.get_axis(1).iter_structures():
        side = "left" if "LEFT" in name else "right"
        maps[side] = np.zeros((len(data), N))
        maps[side][:, model.vertex] = data[:, columns]
    return maps


def run_kind(
    tree: Path,
    out: Path,
    steps: Steps,
    spheres: Path,
    hemisphere: str = "left",
    mesh: str = "fsaverage4",
    **options: object,
) -> Prepared:
    target = Target(spheres, hemisphere, mesh)  # type: ignore[arg-type]
    return prepare_hcp(find_inputs(tree, steps.kind), out, steps, target, **options)  # type: ignore[arg-type]


def maps_of(prepared: Prepared, name: str = "thickness") -> np.ndarray:
    return np.asarray(open_store(prepared.stores[name]).X)


def test_thickness_of_both_hemispheres(tree: Path, spheres: Path, tmp_path: Path) -> None:
    prepared = run_kind(tree, tmp_path / "both", Steps("thickness"), spheres, "both", "fsaverage5")
    store = open_store(prepared.stores["thickness"])
    assert (store.subjects, store.hemisphere, store.sites.name) == (NAMES, "both", "fsaverage5")
    assert (store.modality, store.units) == ("thickness", "mm")
    X = np.asarray(store.X)
    maps = by_nibabel(map_file(tree, NAMES[1]))
    cortex = np.concatenate([values[0] != 0 for values in maps.values()])
    limited = np.zeros(2 * N)
    limited[cortex] = limit_outliers(
        np.concatenate([maps[side][0] for side in maps])[cortex][None]
    )[0]
    assert limited.max() < 6
    for number, side in enumerate(maps):
        resampler = fs_lr_to_fsaverage(spheres, side, "fsaverage5")
        mask = resampler.coverage >= 0.5
        sites = slice(number * 10242, (number + 1) * 10242)
        expected = resampler(limited[number * N : (number + 1) * N])
        assert np.array_equal(store.mask[sites], mask)
        assert 9300 < mask.sum() < 9500
        assert np.abs(X[1, sites][mask] - expected[mask]).max() < 1e-5
        assert np.all(X[:, sites][:, ~mask] == 0)
    left = run_kind(tree, tmp_path / "left", Steps("thickness"), spheres, "left", "fsaverage5")
    assert np.array_equal(maps_of(left), X[:, :10242])
    assert not (tmp_path / "both.work").exists()
    steps = [step["step"] for step in store.provenance["preprocessing"]]
    assert steps == ["limit_outliers", "fill_from_neighbours", "resample"]
    assert store.provenance["filled"] == {}
    for name, record in zip(NAMES, store.provenance["inputs"], strict=True):
        file = map_file(tree, name)
        assert (record["path"], record["subject"]) == (str(file), name)
        assert record["bytes"] == file.stat().st_size
        assert record["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
        assert record["sha256"] == input_hashes(store)[record["path"]]


def test_reho_puts_runs_together_on_32k(tree: Path, spheres: Path, tmp_path: Path) -> None:
    prepared = run_kind(tree, tmp_path / "out", Steps("reho"), spheres)
    store = open_store(prepared.stores["reho"])
    runs = [by_nibabel(series_file(tree, NAMES[0], run))["left"].T for run in RUNS]
    _, faces = read_surface(spheres / "L.sphere.32k_fs_LR.surf.gii")
    expected = reho(concatenate_runs([bandpass(run, TR) for run in runs]), faces)
    carried = fs_lr_to_fsaverage(spheres, "left", "fsaverage4")(expected)
    X = np.asarray(store.X)
    # the file's float32 against nibabel's float64 moves a rank here and there
    assert np.abs(X[0] - carried)[store.mask].max() < 1e-4
    assert np.all((X[:, store.mask] > 0) & (X[:, store.mask] < 1))
    steps = store.provenance["preprocessing"]
    assert [step["step"] for step in steps] == [
        "bandpass",
        "concatenate_runs",
        "reho",
        "fill_from_neighbours",
        "resample",
    ]
    assert steps[0]["method"] == "butterworth"
    assert store.provenance["tr_s"] == [TR]


def test_alff_is_one_store_per_run(tree: Path, spheres: Path, tmp_path: Path) -> None:
    prepared = run_kind(
        tree, tmp_path / "alff.store", Steps("alff", normalize="mean", detrend=True), spheres
    )
    assert {name: path.name for name, path in prepared.stores.items()} == {
        run: f"alff_{run}.store" for run in RUNS
    }
    for run in RUNS:
        store = open_store(prepared.stores[run])
        series = by_nibabel(series_file(tree, NAMES[2], run))["left"].T
        expected = alff(series, TR, detrend=True, normalize="mean")
        carried = fs_lr_to_fsaverage(spheres, "left", "fsaverage4")(expected)
        assert np.abs(np.asarray(store.X)[2] - carried)[store.mask].max() < 1e-4
        assert store.provenance["output"] == run
        assert store.modality == "alff"


def test_parallel_gives_the_same(tree: Path, spheres: Path, tmp_path: Path) -> None:
    """Also where outliers stay: maps as Workbench's definition resamples them."""
    steps = Steps("myelin", limit=None)
    alone = run_kind(tree, tmp_path / "alone", steps, spheres)
    parallel = run_kind(tree, tmp_path / "parallel", steps, spheres, n_procs=2)
    assert np.array_equal(maps_of(alone, "myelin"), maps_of(parallel, "myelin"))
    left = by_nibabel(map_file(tree, NAMES[0], "MyelinMap_BC_MSMAll"))["left"]
    resampler = fs_lr_to_fsaverage(spheres, "left", "fsaverage4")
    off = np.abs(maps_of(alone, "myelin")[0] - resampler(left[0]))
    assert off[resampler.coverage >= 0.5].max() < 1e-5


def test_goes_on_after_an_interruption(
    tree: Path, spheres: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    calls: list[str] = []
    compute = module.subject_map

    def dies_at_the_second(inputs, **options):
        calls.append(inputs.subject)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return compute(inputs, **options)

    monkeypatch.setattr(module, "subject_map", dies_at_the_second)
    with pytest.raises(KeyboardInterrupt, match=rf"{out}\.work"):
        run_kind(tree, out, Steps("thickness"), spheres)
    assert not out.exists()
    resumed = run_kind(tree, out, Steps("thickness"), spheres)
    assert calls == [NAMES[0], NAMES[1], NAMES[1], NAMES[2]]
    assert resumed.reused == 1
    complete = run_kind(tree, tmp_path / "complete", Steps("thickness"), spheres)
    assert np.array_equal(maps_of(resumed), maps_of(complete))


def test_changed_file_is_computed_again(maker: HcpMaker, spheres: Path, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    work = tmp_path / "work"
    for seed, name in enumerate(NAMES[:2]):
        write_cifti(
            map_file(tree, name), maker.maps["thickness_MSMAll"] + 0.1 * seed, maker.columns
        )

    def prepare(**options: object) -> Prepared:
        steps = Steps("thickness", limit=None)
        return run_kind(tree, tmp_path / "out", steps, spheres, work_dir=work, **options)

    X = maps_of(prepare())
    write_cifti(map_file(tree, NAMES[1]), maker.maps["thickness_MSMAll"] + 0.5, maker.columns)
    with pytest.raises(FileExistsError):
        prepare()
    again = prepare(overwrite=True)
    assert again.reused == 1
    mask = open_store(again.stores["thickness"]).mask
    assert np.array_equal(maps_of(again)[0], X[0])
    assert np.abs((maps_of(again)[1] - X[0])[mask] - 0.5).max() < 1e-5
    assert work.is_dir()  # the user named it, the user keeps it


@pytest.fixture
def broken(tree: Path, maker: HcpMaker, tmp_path: Path) -> Path:
    """One good subject, and one for each thing that can be wrong with a series."""
    folder = tmp_path / "broken"
    shutil.copytree(tree / NAMES[0], folder / "1-good")
    good = maker.rest(slice(0, 60), seed=9)
    for name, data, tr in (
        ("2-nan", np.where(np.arange(good.size).reshape(good.shape) == 5, np.nan, good), TR),
        ("3-milliseconds", good, 1400.0),
        ("4-short", good[:12], TR),
        ("5-constant", np.where(np.arange(good.shape[1]) < 300, 3.0, good), TR),
    ):
        maker.run(folder / name / "MNINonLinear", RUNS[0], data, tr)
    maker.run(folder / "6-one-run" / "MNINonLinear", RUNS[0], good)
    cut = series_file(folder, "7-cut")
    cut.parent.mkdir(parents=True)
    cut.write_bytes(series_file(tree, NAMES[0]).read_bytes()[:400_000])
    maker.run(folder / "7-cut" / "MNINonLinear", RUNS[1], good)
    return folder


def test_failures_name_the_file_and_the_run(broken: Path, spheres: Path, tmp_path: Path) -> None:
    prepared = run_kind(broken, tmp_path / "alff", Steps("alff"), spheres)
    problems = [(failure.subject, failure.why) for failure in prepared.failures]
    for name in ("2-nan", "3-milliseconds", "4-short", "5-constant", "7-cut"):
        assert any(
            str(series_file(broken, name)) in why for subject, why in problems if subject == name
        )
    assert dict(problems)["6-one-run"].startswith(str(series_file(broken, "6-one-run", RUNS[1])))
    assert len(problems) == 10
    store = open_store(prepared.stores[RUNS[1]])
    assert store.subjects == ("1-good", "7-cut")
    assert len(store.provenance["failed"]) == 5
    words = f"prepare alff {broken} -o {tmp_path}/again --spheres {spheres} --hemisphere left -q"
    assert run_cli(words, "--target fsaverage4") == 2


def test_tr_may_be_passed_and_nothing_is_written_when_all_fail(
    maker: HcpMaker, spheres: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    maker.run(tree / "a" / "MNINonLinear", RUNS[0], maker.rest(slice(0, 60), seed=9), 1400.0)
    with pytest.raises(CohortError) as caught:
        run_kind(tree, tmp_path / "out", Steps("alff"), spheres)
    assert [path for path, _ in caught.value.problems] == ["prepare", f"a ({RUNS[0]})"]
    assert not (tmp_path / f"out_{RUNS[0]}").exists()
    prepared = run_kind(tree, tmp_path / "out", Steps("alff", tr=TR), spheres)
    assert prepared.failures == ()
    assert open_store(prepared.stores[RUNS[0]]).provenance["preprocessing"][0]["tr"] == TR


def test_series_in_hertz_has_no_tr(maker: HcpMaker, spheres: Path, tmp_path: Path) -> None:
    file = series_file(tmp_path / "tree", "a")
    file.parent.mkdir(parents=True)
    rows = nibabel.cifti2.SeriesAxis(0, 1.4, 60, unit="hertz")
    nibabel.Cifti2Image(maker.series[:60], header=(rows, maker.columns)).to_filename(file)
    with pytest.raises(CohortError, match=file.name):
        run_kind(tmp_path / "tree", tmp_path / "out", Steps("reho"), spheres)


def test_participants_choose_order_and_describe(tree: Path, spheres: Path, tmp_path: Path) -> None:
    table = tmp_path / "participants.tsv"
    table.write_text(f"participant_id\tage\n{NAMES[2]}\t30\nnobody\t40\n{NAMES[0]}\t22\n")
    prepared = run_kind(tree, tmp_path / "out", Steps("thickness"), spheres, participants=table)
    store = open_store(prepared.stores["thickness"])
    assert store.subjects == (NAMES[2], NAMES[0])
    assert store.participants["age"].tolist() == [30, 22]
    (failure,) = prepared.failures
    assert asdict(failure)["subject"] == "nobody"
    table.write_text("participant_id\nnobody\n")
    with refused("participants"):
        run_kind(tree, tmp_path / "none", Steps("thickness"), spheres, participants=table)


def test_bad_trees(tree: Path, spheres: Path, maker: HcpMaker, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, options in (
        (tmp_path / "nowhere", {}),
        (tmp_path / "empty", {}),
        (tree, {"subjects": ["999"]}),
        (tree, {"series": "_raw"}),
    ):
        with refused(folder.name):
            find_inputs(folder, "reho", **options)
    with refused("kind"):
        find_inputs(tree, "area")
    with refused("runs"):
        find_inputs(tree, "alff", runs=["../x"])
    assert [files.subject for files in find_inputs(tree, "reho", subjects=[NAMES[1]])] == [NAMES[1]]
    other_tree = tmp_path / "tree"
    thickness = maker.maps["thickness_MSMAll"]
    write_cifti(map_file(other_tree, "two"), np.repeat(thickness, 2, axis=0), maker.columns)
    write_cifti(map_file(other_tree, "nan"), thickness * np.nan, maker.columns)
    (other_tree / "none" / "MNINonLinear").mkdir(parents=True)
    with pytest.raises(CohortError) as caught:
        run_kind(other_tree, tmp_path / "out", Steps("thickness"), spheres)
    problems = dict(caught.value.problems)
    for name in ("two", "nan", "none"):
        assert str(map_file(other_tree, name)) in problems[f"{name} (thickness)"]
    with refused("n_procs"):
        run_kind(tree, tmp_path / "out", Steps("thickness"), spheres, n_procs=0)


def test_files_that_hold_the_medial_wall_give_the_same(
    maker: HcpMaker, spheres: Path, tmp_path: Path
) -> None:
    values = maker.maps["thickness_MSMAll"]
    write_cifti(map_file(tmp_path / "59412", "a"), values, maker.columns)
    full = np.zeros((1, 2 * N))
    full[:, np.concatenate(list(maker.roi.values()))] = values
    columns = columns_of({side: np.ones(N, dtype=bool) for side in maker.roi})
    write_cifti(map_file(tmp_path / "64984", "a"), full, columns)
    maps = [
        maps_of(run_kind(tmp_path / n, tmp_path / f"{n}.store", Steps("thickness"), spheres))
        for n in ("59412", "64984")
    ]
    assert np.array_equal(*maps)


def test_a_few_dead_vertices_are_filled_and_counted(
    maker: HcpMaker, spheres: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    good = [maker.rest(slice(60 * i, 60 * i + 60), seed=i) for i in range(2)]
    dead = np.isin(np.arange(good[0].shape[1]), [50, 51, 400])
    for run, data in zip(RUNS, good, strict=True):
        maker.run(tree / "whole" / "MNINonLinear", run, data)
    # dead in one run is dead in ReHo, which puts them together
    maker.run(tree / "dead" / "MNINonLinear", RUNS[0], np.where(dead, 0, good[0]))
    maker.run(tree / "dead" / "MNINonLinear", RUNS[1], good[1])
    for kind, output in (("reho", "reho"), ("alff", RUNS[0])):
        prepared = run_kind(tree, tmp_path / kind, Steps(kind), spheres, mesh="fsaverage6")
        store = open_store(prepared.stores[output])
        assert store.subjects == ("dead", "whole")
        assert store.provenance["filled"] == {"dead": 3}
        X = np.asarray(store.X)
        off = np.abs(X[0] - X[1])
        changed = np.flatnonzero(off > 1e-6)
        assert 1 <= len(changed) < 200
        assert off.max() < 0.5 * X[1][store.mask].max()
        assert X[0][store.mask].min() > 0
    assert open_store(prepared.stores[RUNS[1]]).provenance["filled"] == {}
    strict = run_kind(tree, tmp_path / "strict", Steps("reho", max_missing=0), spheres)
    assert [failure.subject for failure in strict.failures] == ["dead"]


def test_filling_takes_the_mean_of_neighbours_rim_first() -> None:
    mesh = icosphere(3)
    rng = np.random.default_rng(0)
    values = rng.uniform(1, 2, len(mesh.vertices))
    cortex = np.ones(len(values), dtype=bool)
    missing = np.arange(len(values)) == 100
    neighbourhood = np.unique(mesh.faces[(mesh.faces == 100).any(axis=1)])
    around = neighbourhood[neighbourhood != 100]
    cortex[around[0]] = False
    filled = fill_from_neighbours(np.where(missing, np.nan, values), missing, cortex, mesh.faces)
    assert abs(filled[100] - values[around[1:]].mean()) < 1e-12
    assert np.array_equal(filled[~missing], values[~missing])
    patch = np.isin(np.arange(len(values)), neighbourhood)
    assert np.all(
        fill_from_neighbours(np.where(patch, np.nan, 3.0), patch, ~missing | missing, mesh.faces)
        == 3
    )
    with refused("missing"):
        fill_from_neighbours(values, missing, missing, mesh.faces)


def test_cortex_of_the_files_serves_where_the_spheres_have_none(
    tree: Path, spheres: Path, maker: HcpMaker, tmp_path: Path
) -> None:
    bare = tmp_path / "spheres"
    shutil.copytree(spheres, bare, ignore=shutil.ignore_patterns("*atlasroi*"), symlinks=True)
    prepared = [
        run_kind(tree, tmp_path / name, Steps("myelin"), folder)
        for name, folder in (("atlas", spheres), ("files", bare))
    ]
    assert np.array_equal(*(maps_of(kind, "myelin") for kind in prepared))
    full = columns_of({side: np.ones(N, dtype=bool) for side in maker.roi})
    file = map_file(tmp_path / "64984", "a")
    write_cifti(file, np.ones((1, 2 * N)), full)
    with refused(file.name):
        run_kind(tmp_path / "64984", tmp_path / "out", Steps("thickness"), bare)
    file.write_bytes(b"no CIFTI")
    with refused("spheres"):
        run_kind(tmp_path / "64984", tmp_path / "out", Steps("thickness"), bare)


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ({"max_missing": 1.0}, "max_missing"),
        ({"kind": "area"}, "kind"),
        ({"tr": 720}, "tr"),
        ({"low": 0.2}, "low"),
        ({"band": "theta"}, "band"),
        ({"limit": 0}, "n_deviations"),
        ({"rings": 0}, "rings"),
    ],
)
def test_wrong_settings_are_told_before_any_file_is_read(change: dict, argument: str) -> None:
    with refused(argument):
        Steps(**{"kind": "reho", **change})


def test_bands_have_names() -> None:
    assert Steps("alff").ends == (0.05, 0.1)
    assert Steps("alff", band="usual").ends == (0.01, 0.08)
    assert Steps("alff", band="usual", high=0.1).ends == (0.01, 0.1)
    assert Steps("alff", band="usual").record()[0]["low_hz"] == 0.01


# Words after `prepare`, and the option that the error is about.
REFUSED = [
    ("reho TREE --spheres x --tr 720", "--tr"),
    ("reho TREE", "--spheres"),
    ("alff TREE --spheres x --limit-outliers", "--limit-outliers"),
    ("reho TREE TREE", ""),
    ("reho TREE --mask x", "--mask"),
    ("TREE --tr 2", "--tr"),
    ("thickness TREE --spheres x --rings 2", "--rings"),
    ("myelin TREE --spheres x --band usual", "--band"),
    ("alff TREE --spheres x --no-tie-correction", "--no-tie-correction"),
    ("alff TREE --spheres x --map sulc", "--map"),
    ("reho TREE --spheres x --filter fft --order 2", "--order"),
    ("myelin TREE --spheres x --no-limit-outliers --n-deviations 3", "--n-deviations"),
    ("myelin TREE --spheres x --target fsaverage4 --resample-to fsaverage5", "--target"),
    ("myelin TREE --spheres x --exclude nobody", "nobody"),
    ("TREE --n-procs 2", "--n-procs"),
    ("TREE --n-deviations 2", "--n-deviations"),
    ("TREE --surfaces x", "--surfaces"),
    ("TREE --spheres x", "--spheres"),
    ("TREE --method barycentric", "--method"),
    ("alff TREE --spheres TREE", "fsLR32k"),
]


@pytest.mark.parametrize(("words", "option"), REFUSED)
def test_words_that_are_refused(
    words: str, option: str, tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli("prepare", words.replace("TREE", str(tree)), f"-o {tmp_path}/out --quiet") == 2
    assert option in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_it_would_do(
    tree: Path, spheres: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "participants.tsv"
    table.write_text("participant_id\n" + "\n".join([*NAMES, "nobody"]) + "\n")
    options = f"--spheres {spheres} --target fsaverage4 --hemisphere left"
    people = f"--exclude {NAMES[0]} --participants {table}"
    for kind, n_files in (("myelin", 2), ("alff", 4)):
        words = f"prepare {kind} {tree} -o {tmp_path}/{kind}.store"
        assert run_cli(words, options, people, "--dry-run") == 0
        out = capsys.readouterr().out
        assert f"{n_files} files" in out and "2 subjects" in out and "nobody" in out
    assert [path.name for path in tmp_path.iterdir()] == ["participants.tsv"]
    (tmp_path / f"alff_{RUNS[0]}.store").mkdir()
    (tmp_path / f"alff_{RUNS[0]}.store" / "mine.txt").touch()
    assert run_cli(words, options, people, "--dry-run") == 2
