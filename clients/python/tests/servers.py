"""A scripted server, a proxy that can fail, and a real Sluice."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TEST_KEY = "slk_test_topsecret0123456789"
DEMO_KEY = "slk_demo_0123456789abcdef0123456789abcdef"
CHECKOUT = Path(__file__).parents[3]

#: How long a test waits for what nobody promised to be quick.
PATIENCE = 30.0


@dataclass
class Received:
    method: str
    path: str
    body: str
    headers: Any  # of any case


class Server:
    """Answers by a function, which may take its time, and keeps the requests. An answer is one of the vectors'."""

    def __init__(self, test: unittest.TestCase, answer: Callable[[Received], dict[str, Any]]) -> None:
        self.requests: list[Received] = []
        ended = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                received = Received(self.command, self.path, body, self.headers)
                outer.requests.append(received)
                scripted = answer(received)
                fault = scripted.get("fault")
                if fault:
                    self.close_connection = True
                    if fault == "slow":
                        ended.wait(PATIENCE)
                    elif fault in ("trickle", "trickle_header"):
                        self.trickle(fault == "trickle")
                    elif fault == "truncated":
                        self.wfile.write(
                            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
                            b'{"allowed":'
                        )
                    return
                text = json.dumps(scripted["body"]) if "body" in scripted else scripted.get("text", "")
                self.send_response(scripted.get("status", 200))
                self.send_header("Content-Type", scripted.get("type", "application/json"))
                for name, value in scripted.get("headers", {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def trickle(self, behind_header: bool) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "1000000")
                if behind_header:
                    self.end_headers()
                else:
                    self.flush_headers()
                    self.wfile.write(b"X-Long: ")
                give_up = time.monotonic() + PATIENCE
                try:
                    while not ended.wait(0.02) and time.monotonic() < give_up:
                        self.wfile.write(b"x")
                except OSError:
                    pass  # the client gave up

            do_GET = do_POST = handle_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client left

        http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()

        def stop() -> None:
            ended.set()
            http.shutdown()
            http.server_close()

        test.addCleanup(stop)

    def take(self) -> list[Received]:
        got, self.requests = self.requests, []
        return got


def gone_url() -> str:
    """The URL of a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


class Proxy:
    """A proxy in front of a server, that can hang or be gone."""

    def __init__(self, test: unittest.TestCase, target: str) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._hanging = False
        self._listen(0)
        self.url = f"http://127.0.0.1:{self._port}"
        test.addCleanup(self.gone)

    def _listen(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", port))
        self._port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
                upstream = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._sockets |= {client, upstream}
            for pair in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, to: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if not self._hanging:
                    to.sendall(data)
        except OSError:
            pass
        self._drop({source, to})

    def _drop(self, sockets: set[socket.socket]) -> None:
        with self._lock:
            self._sockets -= sockets
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def hang(self) -> None:
        self._hanging = True

    def gone(self) -> None:
        try:
            self._server.shutdown(socket.SHUT_RDWR)  # wakes accept
        except OSError:
            pass
        self._server.close()
        self._drop(set(self._sockets))

    def back(self) -> None:
        """Ends what hung, as a restart does."""
        self._hanging = False
        self._drop(set(self._sockets))
        if self._server.fileno() == -1:
            self._listen(self._port)


class RealSluice:
    """`sluice dev` with data and ports of its own. `make test` builds it; SLUICE_BINARY names another."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        binary = environment.pop("SLUICE_BINARY", str(CHECKOUT / ".bin/sluice"))
        # The user of Postgres may be unable to reach the checkout.
        self._folder = tempfile.mkdtemp(prefix="sluice-py-")
        os.chmod(self._folder, 0o755)
        environment |= {
            "SLUICE_DATA_DIR": f"{self._folder}/data",
            "SLUICE_CHECK_ADDR": "127.0.0.1:0",
            "SLUICE_ADMIN_ADDR": "127.0.0.1:0",
            "SLUICE_METRICS_ADDR": "127.0.0.1:0",
            "SLUICE_GRPC_ADDR": "127.0.0.1:0",
            "SLUICE_STORE_BUDGET": "5s",  # what happens without Redis has tests of its own
        }
        self._process = subprocess.Popen(
            [binary, "dev"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        log, url = "", None
        for line in self._process.stdout:
            log += line
            if found := re.search(r"curl -i (http://[\d.:]+)/v1/check", line):
                url = found[1]
            if url and "Ctrl-C" in line:
                break
        else:
            self.stop()
            raise RuntimeError(f"{binary} dev does not start:\n{log}")
        self.url = url
        threading.Thread(target=self._process.stdout.read, daemon=True).start()  # so that it never waits for a reader

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
