"""Stores behind a URL: read as those on disk, ahead of their use, and with bounded patience and memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers import servers
from helpers.refusals import refused
from helpers.servers import Server, served
from helpers.stores import check_same
from icofactor.cli.main import main
from icofactor.cohort.store import (
    append_store,
    compact_store,
    create_store,
    is_store,
    open_store,
    save_store,
)
from icofactor.errors import ArgumentError, CohortError, RemoteError
from icofactor.io import remote
from icofactor.io.url import bare, is_url

pytest.importorskip("aiohttp", reason="needs the extra icofactor[remote]")
COHORT = ico.simulate_cohort(24, 3, mesh="fsaverage3", random_state=0)
CHUNK = "part-000001-00000001/c/2/1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("served")
    create_store(found / "a.store", [COHORT], chunk_sites=64, chunk_subjects=10)
    create_store(found / "b.store", [COHORT], dtype="float16")
    return found


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote, "_FIRST_PAUSE", 0.001)
    with served(folder) as found:
        yield found


def fit(maps: Any, **more: Any) -> Any:
    return ico.CorticalFactorization(3, n_starts=2, random_state=0).fit(maps, **more)


def test_it_is_the_store(server: Server, folder: Path) -> None:
    url = f"{server.url}/a.store"
    stored = open_store(f"{url}/")
    assert (
        str(stored.path) == url
        and url in repr(stored)
        and is_store(url)
        and not is_store(f"{server.url}/none")
    )
    check_same(stored, COHORT)
    np.testing.assert_array_equal(stored[[20, 3]].X[:, 5:9], COHORT.X[[20, 3], 5:9])
    check_same(pickle.loads(pickle.dumps(stored)), COHORT)
    there, here = open_store(f"{server.url}/b.store"), open_store(folder / "b.store")
    np.testing.assert_array_equal(np.asarray(there.X), np.asarray(here.X))
    with pytest.raises(FileNotFoundError, match="no cohort store"):
        open_store(f"{server.url}/none")


def test_a_pass_reads_every_chunk_once_and_ahead(server: Server, folder: Path) -> None:
    stored = open_store(f"{server.url}/a.store")
    server.asked.clear()
    server.delay = 0.005
    model, here = fit(stored), fit(open_store(folder / "a.store"))
    np.testing.assert_array_equal(model.components_, here.components_)
    np.testing.assert_array_equal(model.loadings_, here.loadings_)
    assert set(server.asked.values()) == {2} and len(server.asked) == 11 * 3  # passes; chunks
    assert 2 < server.most_at_once <= remote._AT_ONCE


@pytest.mark.parametrize("readers", [1, 6])
def test_what_waits_is_bounded(
    server: Server, readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is read, and by many threads too; and nothing is read twice."""
    stored = open_store(f"{server.url}/a.store")
    size, expected = stored.X.values._parts[0].chunk_bytes, COHORT.X[:, stored.order].T
    reader, held, server.delay = stored.path._reader, list[int](), 0.002  # type: ignore[union-attr]
    monkeypatch.setattr(remote, "AHEAD_BYTES", 12 * size)

    def read(where: slice) -> bool:
        found = stored.read_sites(where)
        with reader._lock:
            held.append(sum(one.held for one in reader._coming.values()))
        return np.array_equal(found, expected[where])

    with ThreadPoolExecutor(readers) as pool:
        assert all(pool.map(read, stored.site_blocks()))
        assert 0 < max(held) <= 12 * size and held[-1] == 0
        assert {
            server.asked[f"a.store/part-000001-00000001/c/{i}/{j}"]
            for i in range(11)
            for j in range(3)
        } == {1}
        assert all(pool.map(read, [slice(first, first + 100) for first in (500, 0, 320, 128)]))
    monkeypatch.setattr(remote, "_STALE", 2)
    assert read(slice(0, 64)) and read(slice(64, 128)) and 0 < max(held) <= 12 * size


@pytest.mark.parametrize(
    "fault", [servers.cut, servers.cut_silently, servers.status(503), servers.status(429)]
)
def test_what_passes_is_tried_again(server: Server, fault: Any) -> None:
    server.fault = lambda path, n: fault if n < remote.ATTEMPTS and path.endswith(CHUNK) else None
    check_same(open_store(f"{server.url}/a.store"), COHORT)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("fault", "where", "problem", "asked"),
    [
        (servers.cut, CHUNK, r"in 5 attempts \(ClientPayloadError\): check the network", 5),
        (servers.cut_silently, CHUNK, "2564 bytes came|of 2564", 5),
        (servers.status(500), "commit.json", r"in 5 attempts \(HTTP status 500\)", 5),
        (servers.status(403), "zarr.json", "access is denied.*credentials the environment has", 1),
        (servers.status(404), CHUNK, "is missing", 1),
        (servers.status(418), CHUNK, "HTTP status 418", 1),
        (servers.redirected, CHUNK, "redirected without end", 10),
        (
            servers.redirected_to("file:///etc/passwd"),
            CHUNK,
            "redirected to something other than a web address",
            1,
        ),
        (
            servers.redirected_to("http://[secret"),
            CHUNK,
            "redirected to something other than a web address",
            1,
        ),
        (servers.wrong, CHUNK, "checksum is wrong", 1),
        (servers.wrong, "mesh-00000001/order/c/0", "checksum is wrong", 1),
        (servers.wrong, "commit.json", "not valid JSON", 1),
        (servers.endless, CHUNK, "is larger than the 2564 bytes", 1),
        (servers.packed, CHUNK, "is larger than the 2564 bytes", 1),
        (servers.endless, "part-000001-00000001/zarr.json", "is larger than the 65536 bytes", 1),
    ],
)
def test_faults_that_stay(server: Server, fault: Any, where: str, problem: str, asked: int) -> None:
    server.fault = lambda path, n: fault if path == f"a.store/{where}" else None
    with pytest.raises(CohortError, match=problem) as caught:
        np.asarray(open_store(f"{server.url}/a.store").X)
    assert caught.value.path == f"{server.url}/a.store/{where}" and "secret" not in str(
        caught.value
    )
    assert caught.value.__cause__ is None
    assert server.asked[f"a.store/{where}"] in (
        asked,
        2 * asked,
    )  # the commit is compared once more


@pytest.mark.hostile
def test_memory_stays_bounded_whatever_is_sent(server: Server) -> None:
    server.fault = lambda path, n: servers.endless if path.endswith("commit.json") else None
    tracemalloc.start()
    try:
        with pytest.raises(RemoteError, match="is larger than the 67108864 bytes"):
            open_store(f"{server.url}/a.store")
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**26
    finally:
        tracemalloc.stop()


def test_chunks_too_large_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_store(COHORT, tmp_path / "a")
    with served(tmp_path) as server:
        from icofactor.cohort.store import arrays

        monkeypatch.setattr(arrays, "MOST_FILE", 1000)
        with pytest.raises(CohortError, match="at most 1000 are read from a URL"):
            open_store(f"{server.url}/a")


def test_a_server_that_never_agrees_with_itself(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit another generation, none of which can be read: tried a few times, not for ever."""
    from icofactor.cohort.store import read

    seen: list[int] = []
    commit = read.read_commit(open_store(f"{server.url}/a.store").path)

    def restless(folder: Any) -> Any:
        from dataclasses import replace

        seen.append(1)
        return replace(commit, generation=len(seen), mesh="mesh-99999999")

    monkeypatch.setattr(read, "read_commit", restless)
    with pytest.raises(CohortError):
        open_store(f"{server.url}/a.store")
    assert len(seen) < 50


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@host/a.store",
        "https://host/a.store?X-Amz-Signature=secret",
        "s3://bucket/a.store?token=secret#secret",
        "https://user:secret/with@host/a.store",
        "https://host/a.store#secret",
    ],
)
def test_secrets_in_urls_are_refused_and_never_shown(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ArgumentError) as caught:
        ico.load_cohort(url)
    assert "secret" not in repr(caught.value) + str(caught.value) and "environment" in str(
        caught.value
    )
    for argv in (["fit", url, "-o", str(tmp_path / "o")], ["fit", str(tmp_path), "-o", url],
                 ["fit", url, url, "-o", str(tmp_path / "o"), "--share", "maps"],
                 ["fit", url, str(tmp_path), "-o", str(tmp_path / "o")], ["fit", f"a={url}", "-o", str(tmp_path / "o")],
                 ["fit", url, "--mesh", "fsaverage5", "-o", str(tmp_path / "o")]):  # fmt: skip
        assert main(argv) == 2
        said = capsys.readouterr()
        assert "secret" not in said.out + said.err and len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/a",
        "s3://",
        "https://host",
        "s3://bucket/a/../b",
        "https://host/a\nb",
        "az://a/b",
    ],
)
def test_addresses_that_are_not_stores(url: str) -> None:
    with refused("paths", "^(Stores are read from|A URL must name)"):
        open_store(url)


def test_what_is_a_url() -> None:
    assert (
        is_url("s3://b/c")
        and is_url(Path("https://b/c"))
        and not is_url("C:\\a")
        and not is_url("a/b:/c")
    )
    assert bare(str(Path("https://u:p@h/x?q"))) == "https://h/x" and bare("a@b") == "a@b"


def test_nothing_is_written_to_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = "s3://bucket/x"
    for work, argument in (
        (lambda: save_store(COHORT, url), "path"),
        (lambda: append_store(url, COHORT), "path"),
        (lambda: compact_store(url), "path"),
        (lambda: ico.fit_cohort(COHORT, ico.CorticalFactorization(2), url), "out"),
        (lambda: fit(COHORT).save(f"{url}/model.zip"), "out"),
    ):
        with refused(argument, "on this machine"):
            work()
    for argv in (["demo", url], ["fit", "x", "-o", url],
                 ["transform", "m", "x", "-o", url], ["select", "x", "-o", url],
                 ["prepare", "x", "-o", url]):  # fmt: skip
        assert main(argv) == 2
    assert not list(tmp_path.iterdir())


def test_without_the_extra_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    remote._filesystem.cache_clear()
    assert main(["fit", "s3://bucket/a.store", "-o", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert (
        "pip install 'icofactor[remote]'" in said
        and len(said.splitlines()) == 1
        and not list(tmp_path.iterdir())
    )


@pytest.mark.slow
def test_commands_read_urls(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, out, few = (
        f"{server.url}/a.store",
        tmp_path / "out",
        ["--n-components", "3", "--n-starts", "2", "-q"],
    )
    assert main(["fit", url, "-o", str(out), "--dry-run"]) == 0
    assert "Would read 33 files" in capsys.readouterr().out
    assert main(["fit", url, "-o", str(out), "--no-figures", *few]) == 0
    assert main(["transform", str(out), url, "-o", str(tmp_path / "new.tsv"), "-q"]) == 0
    assert (
        main(
            [
                "fit",
                f"a={url}",
                f"b={server.url}/b.store",
                "--share",
                "maps",
                "-o",
                str(tmp_path / "two"),
                "--dry-run",
            ]
        )
        == 0
    )
    tiny = ["--ranks", "2,3", "--splits", "2", "--starts", "2", "--nulls", "5", "-q"]
    assert main(["select", url, "-o", str(tmp_path / "selection"), *tiny]) == 0
    texts = (
        file.read_text(errors="replace")
        for file in tmp_path.rglob("*")
        if file.suffix in (".json", ".html", ".md")
    )
    assert "127.0.0.1" not in "".join(texts)


def test_a_fit_that_lost_its_server_leaves_nothing(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, out = f"{server.url}/a.store", tmp_path / "out"
    server.fault = lambda path, n: (
        servers.cut if path.endswith("c/7/1") and n > 1 else None
    )  # the second pass
    with refused("c/7/1", "5 attempts"):
        fit(open_store(url))
    server.fault = lambda path, n: servers.cut if path.endswith("c/7/1") else None
    assert main(["fit", url, "-o", str(out), "--n-starts", "2", "-q"]) == 2
    said = capsys.readouterr().err
    assert (
        f"{url}/part-000001-00000001/c/7/1: could not be read in 5 attempts" in said
        and len(said.splitlines()) == 1
    )
    assert not out.exists()


@pytest.mark.slow
def test_a_process_that_ends_while_things_are_coming_says_nothing(server: Server) -> None:
    server.delay = 0.2
    code = f"import icofactor as i; s = i.cohort.open_store('{server.url}/a.store'); s.read_sites(slice(0, 64))"
    code += "; print(len(s.path._reader._coming))"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


# ---------------------------------------------------------------------- buckets


@pytest.mark.slow
def test_google_cloud(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gcsfs", reason="needs the extra icofactor[remote]")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setitem(__import__("fsspec").config.conf, "gs", {"token": "anon"})
    check_same(open_store("gs://data/a.store"), COHORT)
    server.fault = lambda path, n: servers.cut if path.endswith(CHUNK) and n < 3 else None
    check_same(open_store("gs://data/a.store"), COHORT)
    for fault, problem in (
        (servers.status(403), "access is denied"),
        (servers.wrong, "checksum is wrong"),
    ):
        server.fault = lambda path, n, fault=fault: fault if path.endswith(CHUNK) else None
        with pytest.raises(CohortError, match=problem):
            np.asarray(open_store("gs://data/a.store").X)


@pytest.fixture(scope="module")
def bucket(folder: Path) -> Iterator[str]:
    pytest.importorskip("s3fs", reason="needs the extra icofactor[remote]")
    pytest.importorskip("moto.server", reason="moto and flask are not installed")
    with servers.s3_server("data") as (url, client):
        servers.upload(client, "data", folder / "a.store")
        yield url


@pytest.fixture
def keys(bucket: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a user: nothing of AWS but this server; its keys are returned."""
    from s3fs import S3FileSystem

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    known = {
        "AWS_ENDPOINT_URL": bucket,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    known |= dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    S3FileSystem.clear_instance_cache()
    remote._filesystem.cache_clear()
    return {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@pytest.mark.slow
def test_s3_without_credentials(keys: dict[str, str]) -> None:
    with pytest.raises(RemoteError, match="no valid credentials were found in the environment"):
        open_store("s3://data/a.store")


@pytest.mark.slow
def test_s3_with_credentials_of_the_environment(
    keys: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    check_same(open_store("s3://data/a.store"), COHORT)
    with pytest.raises(FileNotFoundError, match="no cohort store s3://data/none; check the URL"):
        open_store("s3://data/none")


@pytest.mark.slow
def test_workers_of_a_cluster_read_for_themselves(
    keys: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    script, out = tmp_path / "fit.py", tmp_path / "components.npy"
    script.write_text(
        f"""
import numpy as np, icofactor as ico
from distributed import Client
if __name__ == "__main__":
    stored = ico.cohort.open_store("s3://data/a.store")
    with Client(n_workers=1, threads_per_worker=2, dashboard_address=None) as client:
        model = ico.CorticalFactorization(3, n_starts=2, random_state=0)
        model.fit(stored, executor=client.get_executor())
    assert stored.bytes_read == 0
    np.save({str(out)!r}, model.components_)
"""
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, **keys},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(
        np.load(out), fit(open_store(folder / "a.store")).components_, rtol=1e-8, atol=1e-12
    )
