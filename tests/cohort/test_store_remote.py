"""Stores behind a URL: read as those on disk, with bounded patience and memory."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers import servers
from helpers.servers import Server, served
from helpers.stores import check_same
from icofactor.cli.main import main
from icofactor.cohort.store import (
    append_store,
    create_store,
    is_store,
    open_store,
    remove_subjects,
    save_store,
)
from icofactor.errors import ArgumentError, CohortError, RemoteError
from icofactor.io.url import bare, is_url

pytest.importorskip("aiohttp", reason="needs the extra icofactor[remote]")
from icofactor.io import remote

COHORT = ico.simulate_cohort(24, 3, mesh="fsaverage3", random_state=0)
CONTENT = "cohort-000001"
CHUNK = f"{CONTENT}/maps/c/2/1"
N_CHUNKS = 11 * 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served")
    create_store(path / "a.store", [COHORT], chunk_sites=64, chunk_subjects=10)
    create_store(path / "b.store", [COHORT], dtype="float16")
    return path


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)
    with served(folder) as server:
        yield server


def fit(maps: Any, **options: Any) -> Any:
    return ico.CorticalFactorization(3, n_starts=2, random_state=0).fit(maps, **options)


def test_it_is_the_store(server: Server, folder: Path) -> None:
    url = f"{server.url}/a.store"
    stored = open_store(f"{url}/")
    assert stored.path == url and url in repr(stored)
    assert is_store(url) and not is_store(f"{server.url}/none")
    check_same(stored, COHORT)
    np.testing.assert_array_equal(stored[[20, 3]].X[:, 5:9], COHORT.X[[20, 3], 5:9])
    check_same(pickle.loads(pickle.dumps(stored)), COHORT)
    remote_maps, local_maps = (
        np.asarray(open_store(f"{place}/b.store").X) for place in (server.url, folder)
    )
    np.testing.assert_array_equal(remote_maps, local_maps)
    with pytest.raises(FileNotFoundError):
        open_store(f"{server.url}/none")


def test_a_pass_reads_every_chunk_once_and_several_at_once(server: Server, folder: Path) -> None:
    stored = open_store(f"{server.url}/a.store")
    server.asked.clear()
    server.delay = 0.005
    model, expected = fit(stored), fit(open_store(folder / "a.store"))
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.loadings_, expected.loadings_)
    # Two passes.
    assert set(server.asked.values()) == {2} and len(server.asked) == N_CHUNKS
    assert server.most_at_once > 2


def test_requests_say_that_they_want_the_bytes_of_the_file(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that compresses does not; a password does not go over plain http."""
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    headers = []

    def look(request: Any, data: bytes) -> bool:
        headers.append((request.headers["Accept-Encoding"], request.headers["Authorization"]))
        return False

    server.fault = lambda path, n: look
    open_store(f"{server.url}/a.store")
    assert set(headers) == {("identity", None)}


@pytest.mark.parametrize(
    "fault", [servers.cut, servers.cut_silently, servers.status(503), servers.status(429)]
)
def test_what_passes_is_tried_again(server: Server, fault: Any) -> None:
    server.fault = lambda path, n: fault if n < remote.ATTEMPTS and path.endswith(CHUNK) else None
    check_same(open_store(f"{server.url}/a.store"), COHORT)


MARK = "zarr.json"
# fault, file, how often it is requested, error; the error is about the file.
LASTING: list[tuple[Any, str, int, type[Exception]]] = [
    (servers.cut, CHUNK, 4, RemoteError),
    (servers.cut_silently, CHUNK, 4, RemoteError),
    (servers.status(500), MARK, 4, RemoteError),
    (servers.status(401), MARK, 1, RemoteError),
    (servers.status(403), MARK, 1, RemoteError),
    (servers.status(418), CHUNK, 1, RemoteError),
    (servers.status(404), CHUNK, 1, RemoteError),
    (servers.redirected_to("http://localhost:1/secret"), CHUNK, 1, RemoteError),
    (servers.redirected_to("/a.store?X-Amz-Signature=secret"), MARK, 1, RemoteError),
    (servers.endless, CHUNK, 1, RemoteError),
    (servers.packed, CHUNK, 1, RemoteError),
    (servers.wrong, MARK, 1, CohortError),
    (servers.packed, MARK, 1, CohortError),
]


@pytest.mark.hostile
@pytest.mark.parametrize(("fault", "file", "requests", "error"), LASTING)
def test_faults_that_stay(
    server: Server, fault: Any, file: str, requests: int, error: type[Exception]
) -> None:
    url = f"{server.url}/a.store/{file}"
    server.fault = lambda path, n: fault if path == f"a.store/{file}" else None
    with pytest.raises(error) as refusal:
        np.asarray(open_store(f"{server.url}/a.store").X)
    assert refusal.value.path == url and "secret" not in str(refusal.value)  # type: ignore[attr-defined]
    assert len(str(refusal.value).splitlines()) == 1
    assert server.asked[f"a.store/{file}"] == requests


@pytest.mark.parametrize("file", [CHUNK, f"{CONTENT}/sites/deepest/c/0"])
def test_changed_bytes_are_found(server: Server, file: str) -> None:
    server.fault = lambda path, n: servers.wrong if path == f"a.store/{file}" else None
    with pytest.raises(CohortError) as refusal:
        np.asarray(open_store(f"{server.url}/a.store").X)
    assert refusal.value.path == f"{server.url}/a.store/{file.partition('/c/')[0]}"


@pytest.mark.hostile
def test_memory_stays_bounded_whatever_is_sent(server: Server) -> None:
    server.fault = lambda path, n: servers.endless if path.endswith(MARK) else None
    tracemalloc.start()
    try:
        with pytest.raises(RemoteError):
            open_store(f"{server.url}/a.store")
        assert tracemalloc.get_traced_memory()[1] < 3 * 2**26
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("file", [MARK, CHUNK])
def test_a_server_that_sends_a_byte_now_and_then_is_given_up(
    server: Server, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 2.0)
    server.fault = lambda path, n: servers.slow if path.endswith(file) else None
    with pytest.raises(RemoteError) as refusal:
        np.asarray(open_store(f"{server.url}/a.store").X)
    assert refusal.value.path.endswith(file) and server.asked[f"a.store/{file}"] == 1


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
    with pytest.raises(ArgumentError) as refusal:
        ico.load_cohort(url)
    assert "secret" not in repr(refusal.value) + str(refusal.value)
    out = ["-o", str(tmp_path / "o")]
    for argv in (["fit", url, *out], ["fit", str(tmp_path), "-o", url], ["fit", f"a={url}", *out]):
        assert main(argv) == 2
        text = capsys.readouterr()
        assert "secret" not in text.out + text.err and len(text.err.splitlines()) == 1


@pytest.mark.parametrize(
    "url", ["ftp://host/a", "s3://", "https://host", "s3://b/a/../b", "https://host/a\nb", "az://a"]
)
def test_addresses_that_are_not_stores(url: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        open_store(url)
    assert refusal.value.argument == "paths"


def test_what_is_a_url() -> None:
    urls = ("s3://b/c", Path("https://b/c"), "C:\\a", "a/b:/c")
    assert [is_url(path) for path in urls] == [True, True, False, False]
    assert bare(str(Path("https://u:p@h/x?q"))) == "https://h/x" and bare("a@b") == "a@b"


def test_nothing_is_written_to_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = "s3://bucket/x"
    for write in (
        lambda: save_store(COHORT, url),
        lambda: append_store(url, COHORT),
        lambda: remove_subjects(url, ["a"]),
        lambda: ico.fit_cohort(COHORT, ico.CorticalFactorization(2), url),
    ):
        with pytest.raises(ArgumentError) as refusal:
            write()
        assert refusal.value.argument in ("path", "out")
    for argv in (["fit", "x", "-o", url], ["transform", "m", "x", "-o", url],
                 ["prepare", "x", "-o", url], ["prepare", url, "--remove", "a"]):  # fmt: skip
        assert main(argv) == 2
    assert not list(tmp_path.iterdir())


def test_without_the_extra_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    assert main(["fit", "s3://bucket/a.store", "-o", str(tmp_path / "out")]) == 2
    text = capsys.readouterr().err
    assert "pip install 'icofactor[remote]'" in text and len(text.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_commands_read_urls(server: Server, tmp_path: Path) -> None:
    url, out = f"{server.url}/a.store", tmp_path / "out"
    small = ["--n-components", "3", "--n-starts", "2", "--no-figures", "-q"]
    for argv in (
        ["fit", url, "-o", str(out), "--dry-run"],
        ["fit", url, "-o", str(out), *small],
        ["transform", str(out), url, "-o", str(tmp_path / "new.tsv"), "-q"],
    ):
        assert main(argv) == 0
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".json", ".html", ".md")]
    assert "127.0.0.1" not in "".join(file.read_text(errors="replace") for file in files)


def test_a_fit_that_lost_its_server_leaves_nothing(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url, out = f"{server.url}/a.store", tmp_path / "out"
    # The second pass.
    server.fault = lambda path, n: servers.cut if path.endswith(CHUNK) and n > 1 else None
    with pytest.raises(RemoteError) as refusal:
        fit(open_store(url))
    assert refusal.value.path == f"{url}/{CHUNK}"
    server.fault = lambda path, n: servers.cut if path.endswith(CHUNK) else None
    assert main(["fit", url, "-o", str(out), "--n-starts", "2", "-q"]) == 2
    text = capsys.readouterr().err
    assert f"{url}/{CHUNK}" in text and len(text.splitlines()) == 1
    assert not out.exists()


@pytest.mark.slow
def test_a_process_that_read_a_url_ends_without_noise(server: Server) -> None:
    """Also where one file cannot be read while others are on their way."""
    server.delay = 0.2
    url = f"{server.url}/a.store"
    code = f"import icofactor as i; s = i.cohort.open_store('{url}'); print(s.X[:, :640].shape)"
    for fault, status, out in ((None, 0, "(24, 640)\n"), (servers.status(403), 1, "")):
        server.fault = lambda path, n, fault=fault: fault if path.endswith(CHUNK) else None
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (status, out)
        assert "Task" not in done.stderr and "Unclosed" not in done.stderr
        assert bool(done.stderr) == bool(status)


# ---------------------------------------------------------------------- buckets


@pytest.mark.slow
def test_google_cloud(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gcsfs", reason="needs the extra icofactor[remote]")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setitem(__import__("fsspec").config.conf, "gs", {"token": "anon"})
    check_same(open_store("gs://data/a.store"), COHORT)
    server.fault = lambda path, n: servers.status(403) if path.endswith(CHUNK) else None
    with pytest.raises(RemoteError) as refusal:
        np.asarray(open_store("gs://data/a.store").X)
    assert refusal.value.path == f"gs://data/a.store/{CHUNK}"


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
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    environment = {
        "AWS_ENDPOINT_URL": bucket,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        **dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull),
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@pytest.mark.slow
def test_s3_and_its_credentials(keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteError) as refusal:
        open_store("s3://data/a.store")
    assert "AWS_PROFILE" in refusal.value.problem
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    check_same(open_store("s3://data/a.store"), COHORT)
    with pytest.raises(FileNotFoundError):
        open_store("s3://data/none")
