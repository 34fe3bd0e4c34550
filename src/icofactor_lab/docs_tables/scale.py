"""Larger than memory, clusters and resuming: the commands behind docs/measured.md.

python -m icofactor_lab.docs_tables.scale make STORE --subjects 5000  # 327,680 faces × 5,000 subjects, 6.6 GB
python -m icofactor_lab.docs_tables.scale make STORE --subjects 50000 --mesh fsaverage6 --dtype float16  # 8.2 GB
python -m icofactor_lab.docs_tables.scale fit STORE [--cold [2]]  # time, memory and passes, against reading it once
python -m icofactor_lab.docs_tables.scale fit STORE --subjects 1000,5000,50000 --components 20  # of so many of them
python -m icofactor_lab.docs_tables.scale resume STORE  # a fit killed by SIGKILL in both passes, and resumed
python -m icofactor_lab.docs_tables.scale subset STORE  # streamed against held in memory, 200 subjects
python -m icofactor_lab.docs_tables.scale cluster STORE  # one and two workers; workers killed in every stage
python -m icofactor_lab.docs_tables.scale kill --runs 30  # processes killed at random moments, and resumed
python -m icofactor_lab.docs_tables.scale plan  # bytes, memory, network, time and cost of a larger cohort on a cluster
python -m icofactor_lab.docs_tables.scale estimates  # memory and time of `icofactor fit` beside what `--dry-run` says
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from icofactor.streaming.checkpoint import digest

import icofactor as ico
from icofactor import progress
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.arrays import _AHEAD, _opened
from icofactor.cohort.store.create import CHUNK_SITES, CHUNK_SUBJECTS, create_store
from icofactor.cohort.store.read import open_store
from icofactor.sphere.sites import Sites
from icofactor.streaming.runners import in_order, n_threads
from icofactor_lab.common.data import simulate_maps
from icofactor_lab.common.timing import peak_bytes, timed
from icofactor_lab.docs_tables import number, run_task

N_COMPONENTS, N_STARTS = 10, 2
FITS = (("fsaverage5", 200), ("fsaverage6", 100), ("fsaverage7", 50), ("fsaverage6", 500), ("fsaverage7", 150))
SETTINGS: dict[str, Any] = {"n_components": N_COMPONENTS, "n_starts": N_STARTS, "random_state": 0}
COLD = "ICOFACTOR_LAB_COLD"
WHAT = ("components_", "loadings_", "mean_", "error_", "total_variance_")


# ---------------------------------------------------------------------- data


def simulated(n_subjects: int, level: int, block: int = 128, mesh: str = "") -> Iterator[Cohort]:
    """Cohorts of a few subjects each on the faces of an icosphere, with white noise only, which is cheap.

    `mesh`: on both hemispheres of this mesh instead.
    """
    sites = Sites.named(mesh, hemi="both") if mesh else Sites.icosphere(level, on="faces")
    hemisphere: Any = "both" if mesh else "left"
    for part, first in enumerate(range(0, n_subjects, block)):
        names = tuple(f"s{i:05d}" for i in range(first, min(first + block, n_subjects)))
        X = simulate_maps(sites.coordinates, len(names), N_COMPONENTS, smooth=0.0, white=0.15, part=part)
        yield Cohort(X, names, sites, hemisphere=hemisphere, provenance={"simulated": True})


def make(options: argparse.Namespace) -> None:
    cohorts = simulated(options.subjects, options.level, mesh=options.mesh)
    how = {"chunk_sites": options.chunk_sites, "chunk_subjects": options.chunk_subjects, "dtype": options.dtype}
    stored, seconds = timed(lambda: create_store(options.store, cohorts, **how))
    n_bytes = sum(file.stat().st_size for file in files_of(options.store))
    print(f"{stored!r}: {n_bytes / 1e9:.2f} GB in {seconds:.0f} s; {stored.rounding or 'nothing is rounded'}")


def files_of(store: Path) -> list[Path]:
    return [file for file in store.rglob("*") if file.is_file()]


def evict(store: Path) -> None:
    """Take the store out of the page cache."""
    for file in files_of(store):
        with open(file, "rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def touch(store: Path) -> None:
    """Bring the store into the page cache."""
    for file in files_of(store):
        with open(file, "rb", buffering=0) as stream:
            while stream.read(2**24):
                pass


# ---------------------------------------------------------------------- one machine


def child(task: str, *args: Any) -> dict[str, Any]:
    """A task of this script in a process of its own; what it found."""
    argv = [sys.executable, "-m", __spec__.name, "child", task, *map(str, args)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child_read(store: str, n: str) -> dict[str, Any]:
    """The maps of the first n subjects once: plain bytes of their files, or as a fit reads them, with checksums."""
    stored, room = open_store(store)[: int(n)], threading.local()
    source, parts = stored.X.map_source(), stored.X._parts
    wanted = (slice(0, source.shape[0]), slice(0, int(n)))
    files = [str(part._file(numbers)) for part in parts for numbers in part.touched(wanted)]

    def plain(i: int) -> int:
        if not hasattr(room, "buffer"):
            room.buffer = bytearray(2**22)
        for later in files[i + _AHEAD : i + _AHEAD + 1]:  # as far ahead as a fit
            _opened(later).close()
        with open(files[i], "rb", buffering=0) as stream:
            return sum(iter(lambda: stream.readinto(room.buffer), 0))

    def checked(where: slice) -> int:
        part = source.stored(where)
        return source.read(where).nbytes if part is None else sum(tile.x.nbytes for tile in part.tiles())

    found: dict[str, Any] = {"bytes": source.n_bytes, **spent("plain", lambda: sum(in_order(plain, range(len(files)))))}
    evict(Path(store)) if COLD in os.environ else None
    return {**found, **spent("checked", lambda: sum(in_order(checked, source.slices())))}


def spent(name: str, work: Callable[[], Any]) -> dict[str, float]:
    """Seconds and processor seconds of a call, as what `child_read` and `child_fit` report."""
    begin, cpu = time.perf_counter(), time.process_time()
    work()
    return {f"{name}_seconds": time.perf_counter() - begin, f"{name}_cpu": time.process_time() - cpu}


def child_fit(store: str, n: str = "0", components: str = str(N_COMPONENTS), work: str = "") -> dict[str, Any]:
    """A fit of the first n subjects, with the time of its stages and the peak memory of this process."""
    marks: dict[str, tuple[float, float]] = {}
    stage = progress.Stages.stage
    now = lambda: (time.perf_counter(), time.process_time())

    def timed(self: Any, name: str) -> Any:
        if name == "lift" and os.environ.get(COLD) == "2":
            marks["evicted"] = now()
            evict(Path(store))
        marks[name] = now()
        return stage(self, name)

    _warm()
    progress.Stages.stage = timed  # type: ignore[method-assign]
    stored = open_store(store)
    stored = stored[: int(n) or len(stored)]
    baseline, begin = peak_bytes(), now()
    model = ico.CorticalFactorization(int(components), random_state=0).fit(stored, work_dir=work or None)
    marks["end"] = end = now()
    stages = {a: [round(y - x, 2) for x, y in zip(marks[a], marks[b], strict=True)] for a, b in pairwise(list(marks))}
    away = stages.get("evicted", [0.0, 0.0])
    return {
        "seconds": end[0] - begin[0] - away[0],
        "cpu": end[1] - begin[1] - away[1],
        "stages": stages,
        "peak": peak_bytes(),
        "baseline": baseline,
        "passes": model.passes_,
        "bytes_read": model.bytes_read_,
        "explained": model.explained_,
        "digest": digest(model.components_, model.loadings_, model.mean_),
    }


def fit(options: argparse.Namespace) -> None:
    prepare = evict if options.cold else touch
    if options.cold:
        os.environ[COLD] = str(options.cold)
    cold = {0: "warm (read just before)", 1: "cold (evicted before each)", 2: "cold, also before the second pass"}
    print(f"page cache: {cold[options.cold]}; {n_threads()} processors, load {os.getloadavg()[0]:.1f}")
    for n in map(int, options.subjects.split(",")):
        n = n or len(open_store(options.store))
        prepare(options.store)
        read = child("read", options.store, n)
        prepare(options.store)
        found = child("fit", options.store, n, options.components)
        spent_ = f"{found['seconds']:.1f} s, {found['cpu']:.1f} s of processor"
        print(f"{n} subjects, {read['bytes'] / 1e9:.2f} GB. Fit: {spent_}")
        for kind, name in (("plain", "plain files"), ("checked", "as a fit reads them, with checksums")):
            seconds, cpu = read[f"{kind}_seconds"], read[f"{kind}_cpu"]
            times = f"{found['seconds'] / seconds:.1f} and {found['cpu'] / cpu:.1f} times"
            rate = f"{read['bytes'] / seconds / 1e9:.2f} GB/s"
            print(f"  {times} reading once ({name}): {seconds:.1f} s, {rate}, {cpu:.1f} s of processor")
        print(f"  stages (seconds, processor): {found['stages']}")
        print(
            f"  passes: {found['passes']:g}; peak memory: {found['peak'] / 1e9:.2f} GB, "
            f"{found['baseline'] / 1e9:.2f} GB before the fit; explained {found['explained']:.4f}",
            flush=True,
        )


def resume(options: argparse.Namespace) -> None:
    """A fit of a large store, killed once in each pass, then resumed, against one that was left alone."""
    task = ("fit", options.store, options.subjects, options.components)
    with tempfile.TemporaryDirectory(dir=options.store.parent) as folder:
        whole, work = child(*task, f"{folder}/whole"), Path(folder) / "work"
        shutil.rmtree(f"{folder}/whole")
        argv = [sys.executable, "-m", __spec__.name, "child", *map(str, task), str(work)]
        for stage in ("statistics", "lift"):
            process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
            while len(list(work.glob(f"{stage}-*.npz"))) < options.pieces and process.poll() is None:
                time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
            process.wait()
            print(f"killed in {stage}, {len(list(work.glob('*.npz')))} pieces kept", flush=True)
        again = child(*task, work)
    cpu = f"{again['cpu']:.0f} s of processor instead of {whole['cpu']:.0f}"
    print(f"the same bits: {again['digest'] == whole['digest']}; {cpu}")


def subset(options: argparse.Namespace) -> None:
    whole = open_store(options.store)
    with tempfile.TemporaryDirectory() as folder:
        X = whole.X[: options.subjects]
        few = ico.Cohort(X, whole.subjects[: options.subjects], whole.sites)
        stored = create_store(Path(folder) / "few", [few])
        streamed = ico.CorticalFactorization(**SETTINGS).fit(stored)
    held = ico.CorticalFactorization(**SETTINGS).fit(few)
    for name in WHAT:
        a, b = np.asarray(getattr(streamed, name)), np.asarray(getattr(held, name))
        print(f"{name}: largest difference {np.abs(a - b).max() / np.abs(b).max():.1e} of the largest value")
    print(f"passes {streamed.passes_:g}; deepest level {streamed.design_.faces[:, 0].max()}")


# ---------------------------------------------------------------------- a cluster


def cluster(options: argparse.Namespace) -> None:
    from distributed import Client

    stored = open_store(options.store)
    if options.kill:
        whole = ico.CorticalFactorization(**SETTINGS).fit(stored)
        for stage in ("statistics", "starts", "lift"):
            same = _same(_fit_with_a_kill(stored, stage), whole)
            print(f"a worker killed during {stage}: the bits of a fit without a cluster: {same}", flush=True)
        return
    answers, seconds = [], {}
    for n_workers in (1, 2):
        with _workers(n_workers) as made, Client(made) as to:
            to.run(_warm)
            touch(options.store)
            model, seconds[n_workers] = timed(lambda: ico.CorticalFactorization(**SETTINGS).fit(stored, client=to))
            answers.append(model)
            memory = max(to.run(peak_bytes).values())
            print(
                f"{n_workers} worker(s): fit {seconds[n_workers]:.1f} s, most memory of a worker {memory / 1e9:.2f} GB"
            )
    print(f"client's memory {peak_bytes() / 1e9:.2f} GB; same bits: {_same(*answers)}")
    print(f"speed-up from one to two workers: {seconds[1] / seconds[2]:.2f}")


def _workers(n: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(n_workers=n, threads_per_worker=1, processes=True, dashboard_address=":0")


def _warm() -> None:
    """Load on a worker what a fit needs, the kernels among it."""
    ico.CorticalFactorization(2, n_starts=1, engine="cpu").fit(ico.simulate_cohort(8, 2, mesh="fsaverage3"))


def _same(a: Any, b: Any) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in WHAT)


def _fit_with_a_kill(stored: Any, stage: str) -> Any:
    from distributed import Client

    from icofactor.streaming.runners import Cluster

    submit, killed = Cluster.submit, list[int]()
    with _workers(2) as made, Client(made) as to:

        def deadly(self: Cluster, *args: Any) -> Any:
            future = submit(self, *args)
            if not killed and args[3].startswith(stage) and not args[3].endswith("-00000"):
                time.sleep(0.3)
                busy = [worker for worker, tasks in to.processing().items() if tasks]
                killed.extend(to.run(os.getpid, workers=busy[:1] or None).values())
                os.kill(killed[0], signal.SIGKILL)
            return future

        Cluster.submit = deadly  # type: ignore[assignment,method-assign]
        try:
            with tempfile.TemporaryDirectory() as folder:
                model = ico.CorticalFactorization(**SETTINGS).fit(stored, client=to, work_dir=Path(folder) / "work")
        finally:
            Cluster.submit = submit  # type: ignore[method-assign]
    assert killed, "no worker was killed"
    return model


# ---------------------------------------------------------------------- killed and resumed


def child_resume(store: str, work: str, out: str) -> dict[str, Any]:
    from icofactor.streaming import source as sources

    sources.PART_BYTES = 2**20  # many pieces of little data
    stored = open_store(store)
    _warm()  # so that the kills fall into the work, not into loading
    print("ready", flush=True)
    model = ico.CorticalFactorization(**{**SETTINGS, "n_starts": 20, "engine": "cpu"})
    _, seconds = timed(lambda: model.fit(stored, work_dir=work))
    np.savez(out, **{name: np.asarray(getattr(model, name)) for name in WHAT})  # type: ignore[arg-type]
    return {"seconds": seconds}


def kill(options: argparse.Namespace) -> None:
    drawn, failed = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, out = folder / "store", folder / "found.npz"
        create_store(store, simulated(options.subjects, 5), chunk_sites=512)
        seconds = child("resume", store, folder / "whole", folder / "whole.npz")["seconds"]
        print(f"uninterrupted: {seconds:.1f} s, {len(list((folder / 'whole').glob('*.npz')))} pieces", flush=True)
        for run in range(options.runs):
            work, moment = folder / f"work-{run}", drawn.uniform(0, seconds)
            while not _killed_at(moment, store, work, out):  # it was sooner ready than usual
                shutil.rmtree(work)
                moment = drawn.uniform(0, seconds)
            kept = len(list(work.glob("*.npz")))
            child("resume", store, work, out)
            with np.load(out) as found, np.load(folder / "whole.npz") as whole:
                same = all(np.array_equal(found[what], whole[what]) for what in WHAT)
            failed += not same
            when = f"killed after {moment:.2f} s with {kept} pieces kept"
            print(f"run {run + 1:2d}: {when}; {'same bits' if same else 'DIFFERENT'}", flush=True)
            shutil.rmtree(work)
    print(f"{options.runs} runs killed and resumed, {failed} different")
    raise SystemExit(1 if failed else 0)


def _killed_at(moment: float, store: Path, work: Path, out: Path) -> bool:
    """Start the work and kill it after so many seconds; whether it was killed before its end."""
    argv = [sys.executable, "-m", __spec__.name, "child", "resume", str(store), str(work), str(out)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    try:
        process.wait(moment)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return process.returncode == -signal.SIGKILL


# ---------------------------------------------------------------------- on paper


def plan(o: argparse.Namespace) -> None:
    """A fit by `parts` on a cluster: what is read, computed, kept and sent, from rates measured on one machine."""
    from icofactor.streaming.source import even_slices

    n, sites, k, workers = o.subjects, o.sites, o.components, o.workers
    parts = even_slices(sites, n, 4, o.chunk_sites)
    GB = lambda values, size=8: values * size / 1e9
    maps, part, C, L = (
        GB(n * sites, o.bytes),
        GB(n * parts[0].stop, o.bytes),
        GB(n * k),
        GB(n * o.faces),
    )
    each = o.statistics_ns + o.lift_ns
    cpu, M = n * sites * each * 1e-9, 2e-9 * n * o.faces**2 / o.gflops
    starts = M + o.start_seconds
    # of a part: sums over some faces, and the least and largest value of each person; loadings there and sums back
    gathered, lifted = len(parts) * GB((2 + o.faces / len(parts) + 2) * n), 2 * len(parts) * C
    network = 8 * (gathered + lifted) / o.gbit
    total = {rate: max(2 * maps / rate, cpu / workers) + starts + network for rate in o.rates}
    several = lambda texts: ", ".join(f"{text} at {rate:g} GB/s" for text, rate in zip(texts, o.rates, strict=True))
    files = -(-sites // o.chunk_sites) * -(-n // CHUNK_SUBJECTS)
    for name, text in {
        "store": f"{maps:.1f} GB, {files:,} files of {o.chunk_sites} sites × {CHUNK_SUBJECTS} people",
        "reading": f"two passes, {2 * maps:.0f} GB: " + several(f"{2 * maps / rate:.0f} s" for rate in o.rates),
        "computing": f"{n * sites:.2g} values × {each:g} ns: {cpu:.0f} s of processor, "
        f"{cpu / workers:.0f} s on {workers} workers",
        "starts": f"{starts:.0f} s on the client, {M:.0f} of them for M = LᵀL; the rest does not depend on people",
        "memory of a worker": f"{o.python + part + 3 * C:.2f} GB; a part ({parts[0].stop} sites) is {part:.2f} of it",
        "memory of the client": f"{o.python + o.copies * L:.1f} GB: L ({L:.2f} GB) up to {o.copies:g} times",
        "network": f"{gathered:.1f} GB of sums, {lifted:.1f} GB of loadings: {network:.0f} s at {o.gbit:g} Gbit/s",
        "total": several(f"{seconds:.0f} s" for seconds in total.values()),
        "cost": several(f"{workers * seconds / 3600:.2f} hours of a core" for seconds in total.values()),
    }.items():
        print(f"| {name} | {text} |")


def estimates(options: argparse.Namespace) -> None:
    """Memory and time of `icofactor fit` beside the estimates of `--dry-run` (icofactor.cli.estimate).

    Each size is fitted in a process of its own, whose peak memory is asked of the operating system. Time is that of the
    fit and its diagnostics.
    """
    from icofactor.cli.estimate import Size, estimate
    from icofactor.results.diagnostics import load_diagnostics

    print("| mesh, subjects | memory, MiB | estimate | seconds | estimate |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for mesh, n_subjects in FITS:  # growing, since the operating system knows the largest child's memory only
            file, out = Path(folder) / "maps.npy", Path(folder) / f"out-{mesh}-{n_subjects}"
            at = Sites.named(mesh, hemi="both").coordinates
            X = simulate_maps(at, n_subjects, N_COMPONENTS, smooth=0.0, white=0.1)
            np.save(file, X)
            size = Size(n_subjects, X.shape[1], N_COMPONENTS, n_columns=640)
            argv = ["fit", str(file), "--mesh", mesh, "-o", str(out), "-q", "--n-components", str(N_COMPONENTS)]
            subprocess.run([sys.executable, "-m", "icofactor.cli", *argv], check=True, stdout=subprocess.DEVNULL)
            import resource

            used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            spent = load_diagnostics(out / "diagnostics.npz").timing
            needed = estimate(size)
            print(
                f"| {mesh}, {n_subjects} | {used:.0f} | {needed.memory / 2**20:.0f} "
                f"| {spent['fit'] + spent['diagnostics']:.1f} | {needed.seconds:.1f} |",
                flush=True,
            )


def child_task(options: argparse.Namespace) -> None:
    """(one step of the tasks above, in a process of its own)"""
    print(json.dumps(globals()[f"child_{options.step}"](*options.args)))


def main() -> None:
    child_task.__name__ = "child"
    store = {"store": {"type": Path}}
    flag = lambda help_: {"action": "store_true", "help": help_}
    run_task(
        __doc__,
        {
            make: {
                **store,
                "--subjects": number(5000),
                "--level": number(7),
                "--mesh": {"default": "", "help": "both hemispheres of this mesh instead of the faces of a level"},
                "--chunk-sites": number(CHUNK_SITES, "of a file"),
                "--chunk-subjects": number(CHUNK_SUBJECTS, "of a file"),
                "--dtype": {"default": "float32"},
            },
            fit: {
                **store,
                "--cold": {
                    "nargs": "?",
                    "type": int,
                    "const": 1,
                    "default": 0,
                    "help": "evict the store from the page cache before; 2: also between the passes",
                },
                "--subjects": {"default": "0", "help": "numbers of subjects, the first of the store; 0: all"},
                "--components": number(N_COMPONENTS),
            },
            resume: {
                **store,
                "--subjects": number(0, "the first of the store; 0: all"),
                "--components": number(20),
                "--pieces": number(20, "kept in a stage before the kill"),
            },
            subset: {**store, "--subjects": number(200)},
            cluster: {**store, "--kill": flag("kill workers instead of timing them")},
            kill: {"--runs": number(30), "--seed": number(0), "--subjects": number(100)},
            plan: {
                "--subjects": number(100_000),
                "--sites": number(327_680, "of both hemispheres"),
                "--components": number(20),
                "--faces": number(640),
                "--workers": number(16, "of one core"),
                "--bytes": number(2, "per value"),
                "--chunk-sites": number(CHUNK_SITES),
                "--rates": {"type": float, "nargs": "+", "default": [1.0, 5.0], "help": "GB/s of the file system"},
                "--gbit": number(10.0, "Gbit/s of the network"),
                "--statistics-ns": number(2.0, "of processor per value, reading included"),
                "--lift-ns": number(3.0, "the same"),
                "--gflops": number(40.0, "of one core in float64"),
                "--start-seconds": number(1.5, "besides M"),
                "--copies": number(2.5, "of L that the client has at most"),
                "--python": number(0.33, "GB before the fit"),
            },
            estimates: {},
            child_task: {"step": {}, "args": {"nargs": "*"}},
        },
    )


if __name__ == "__main__":
    main()
