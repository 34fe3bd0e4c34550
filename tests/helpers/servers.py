"""Servers on loopback: a folder over HTTP, with the faults a test asks for, and S3 by moto."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Fault = Callable[[BaseHTTPRequestHandler, bytes], bool]
"""(request, content of the file) → whether it was answered; False: as if there were no fault."""


class Server:
    """Files of a folder, also as Google's bucket "data".

    `asked` counts requests by path; `fault(path, n)` is the fault of the n-th request of one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked, self.at_once, self.most_at_once = folder, Counter[str](), 0, 0
        self.fault: Callable[[str, int], Fault | None] = lambda path, n: None
        self.delay, self._lock = 0.0, threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with suppress(ConnectionError):  # the reader went away between two requests
                    super().handle()

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(
            request.path.split("?")[0]
            .removeprefix("/")
            .removeprefix("download/storage/v1/b/data/o/")
        )
        with self._lock:
            self.asked[path] += 1
            n = self.asked[path]
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            time.sleep(self.delay)
            file = self.folder / path
            data = file.read_bytes() if file.is_file() else None
            fault = self.fault(path, n)
            if fault is not None and fault(request, data or b""):
                return
            status = 200 if data is not None else 404
            reply(request, status, data or b"")
        except OSError:  # the reader went away
            request.close_connection = True
        finally:
            with self._lock:
                self.at_once -= 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def reply(request: BaseHTTPRequestHandler, status: int, data: bytes = b"", **headers: str) -> bool:
    request.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        request.send_header(name.replace("_", "-"), value)
    request.end_headers()
    request.wfile.write(data)
    return True


def start_reply(request: BaseHTTPRequestHandler, data: bytes) -> None:
    """Half of the file, without a word on how much there should be."""
    request.send_response(200)
    request.send_header("Connection", "close")
    request.end_headers()
    request.wfile.write(data[: len(data) // 2])
    request.close_connection = True


def cut(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    """Half of the file, then the connection ends."""
    length = {"Content-Length": str(len(data))}
    request.close_connection = reply(request, 200, data[: len(data) // 2], **length)
    return True


def cut_silently(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    start_reply(request, data)
    return True


def endless(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    """The file, and then zeros until nobody listens."""
    start_reply(request, 2 * data)
    while True:
        request.wfile.write(bytes(2**16))


def slow(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    """A byte now and then."""
    request.send_response(200)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    for number in range(100):
        request.wfile.write(data[number : number + 1])
        time.sleep(0.05)
    request.close_connection = True
    return True


def status(code: int) -> Fault:
    return lambda request, data: reply(request, code, b"an error page")


def redirected_to(place: str) -> Fault:
    return lambda request, data: reply(request, 302, Location=place)


def wrong(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    return reply(request, 200, bytes([data[0] ^ 1]) + data[1:])


def packed(request: BaseHTTPRequestHandler, data: bytes) -> bool:
    """A small answer that would be a large one if it were unpacked."""
    import gzip

    return reply(request, 200, gzip.compress(bytes(2**26)), Content_Encoding="gzip")


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def s3_server(bucket: str) -> Iterator[tuple[str, Any]]:
    """moto's S3 on loopback: its address, and a client that may write there."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        keys = {
            "aws_access_key_id": "testing",
            "aws_secret_access_key": "testing",
            "region_name": "us-east-1",
        }
        client = boto3.client("s3", endpoint_url=url, **keys)
        client.create_bucket(Bucket=bucket)
        yield url, client
    finally:
        server.stop()


def upload(client: Any, bucket: str, folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            client.put_object(
                Bucket=bucket,
                Key=file.relative_to(folder.parent).as_posix(),
                Body=file.read_bytes(),
            )
