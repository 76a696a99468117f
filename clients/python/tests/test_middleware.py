"""The same requests through WSGI, ASGI and Django, sync and async."""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import sys
import threading
import time
import unittest
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from sluice import AsyncSluice, Check, Decision, Sluice, Tier, _http, _sync
from sluice.asgi import SluiceMiddleware as Asgi
from sluice.wsgi import SluiceMiddleware as Wsgi

from .servers import PATIENCE, TEST_KEY, Received, Server

logging.getLogger("sluice").addHandler(logging.NullHandler())
logging.getLogger("sluice").propagate = False
settings.configure(SLUICE={}, ALLOWED_HOSTS=["*"], SECRET_KEY="x")
django.setup()

from sluice import django as sluice_django  # noqa: E402
from sluice.django import SluiceMiddleware as Django  # noqa: E402


class Response(NamedTuple):
    status: int
    headers: dict[str, str]


Ask = Callable[[str, "Check | None", str], Response]


def by_wsgi(url: str, check: Check | None, mode: Any) -> Response:
    got: list[Any] = []

    def app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("204 No Content", [])
        return [b""]

    with Sluice(url, TEST_KEY, timeout=PATIENCE, failure_mode=mode) as limits:
        body = Wsgi(app, limits, lambda environ: check)({}, lambda status, headers: got.append((status, headers)))
        b"".join(body)
        close = getattr(body, "close", None)
        if close:
            close()
    return Response(int(got[0][0][:3]), {name.lower(): value for name, value in got[0][1]})


def by_asgi(url: str, check: Check | None, mode: Any) -> Response:
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is received")

    async def ask() -> None:
        async with AsyncSluice(url, TEST_KEY, timeout=PATIENCE, failure_mode=mode) as limits:
            await Asgi(app, limits, lambda scope: check)({"type": "http"}, receive, send)

    asyncio.run(ask())
    return Response(sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]})


def configure(url: str, check: Check | None, mode: Any) -> None:
    settings.SLUICE = {
        "URL": url,
        "KEY": TEST_KEY,
        "IDENTIFY": lambda request: check,
        "OPTIONS": {"timeout": PATIENCE, "failure_mode": mode},
    }


def by_django(url: str, check: Check | None, mode: Any) -> Response:
    configure(url, check, mode)
    response = Django(lambda request: HttpResponse(status=204))(RequestFactory().get("/"))
    return Response(response.status_code, {name.lower(): value for name, value in response.items()})


async def with_background(response: Awaitable[Any], then: Callable[[], None] = lambda: None) -> Any:
    """Lets what goes on behind a response end."""
    got = await response
    then()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    return got


def by_async_django(url: str, check: Check | None, mode: Any) -> Response:
    configure(url, check, mode)

    async def view(request: Any) -> Any:
        return HttpResponse(status=204)

    response = asyncio.run(with_background(Django(view)(AsyncRequestFactory().get("/"))))
    return Response(response.status_code, {name.lower(): value for name, value in response.items()})


def by_django_view(url: str, check: Check | None, mode: Any) -> Response:
    configure(url, check, mode)
    sluice_django._shared = sluice_django._Clients()

    @sluice_django.limit(lambda request: check)
    def view(request: Any, pk: int) -> Any:
        return HttpResponse(status=200 + pk)

    response = view(RequestFactory().get("/"), pk=4)
    return Response(response.status_code, {name.lower(): value for name, value in response.items()})


def by_async_django_view(url: str, check: Check | None, mode: Any) -> Response:
    configure(url, check, mode)
    sluice_django._shared = sluice_django._Clients()

    @sluice_django.limit(lambda request: check)
    async def view(request: Any, pk: int) -> Any:
        return HttpResponse(status=200 + pk)

    response = asyncio.run(with_background(view(AsyncRequestFactory().get("/"), pk=4)))
    return Response(response.status_code, {name.lower(): value for name, value in response.items()})


def by_async_django_view_under_wsgi(url: str, check: Check | None, mode: Any) -> Response:
    configure(url, check, mode)
    sluice_django._shared = sluice_django._Clients()

    @sluice_django.limit(lambda request: check)
    async def view(request: Any, pk: int) -> Any:
        return HttpResponse(status=200 + pk)

    response = asyncio.run(view(RequestFactory().get("/"), pk=4))
    assert "asynchronous" not in vars(sluice_django._shared), "the event loop of the request has ended"
    return Response(response.status_code, {name.lower(): value for name, value in response.items()})


def by_websocket(url: str, check: Check | None, mode: Any) -> Response:
    """A socket that the application accepts counts as 204."""
    sent = ask_for_socket(url, check, mode, {"websocket.http.response": {}})
    headers = {name.decode(): value.decode() for name, value in sent[0].get("headers", [])}
    return Response(204 if sent[0]["type"] == "websocket.accept" else sent[0]["status"], headers)


def ask_for_socket(url: str, check: Check | None, mode: Any, extensions: Any) -> list[Any]:
    received: list[Any] = []
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})

    async def send(message: Any) -> None:
        assert received, "nothing may be sent before websocket.connect"
        sent.append(message)

    async def receive() -> Any:
        received.append({"type": "websocket.connect"})
        return received[-1]

    async def ask() -> None:
        async with AsyncSluice(url, TEST_KEY, timeout=PATIENCE, failure_mode=mode) as limits:
            scope = {"type": "websocket", "extensions": extensions}
            await Asgi(app, limits, lambda scope: check)(scope, receive, send)

    asyncio.run(ask())
    return sent


class MiddlewareTest(unittest.TestCase):
    ways: dict[str, Ask] = {
        "wsgi": by_wsgi,
        "asgi": by_asgi,
        "websocket": by_websocket,
        "django": by_django,
        "async django": by_async_django,
        "django view": by_django_view,
        "async django view": by_async_django_view,
        "async django view under wsgi": by_async_django_view_under_wsgi,
    }

    def each(
        self, answer: dict[str, Any], check: Check | None = Check(user_id="42"), mode: str = "open"
    ) -> Iterable[tuple[Response, Server, float]]:
        for name, ask in self.ways.items():
            with self.subTest(name):
                server = Server(self, lambda r: {"body": {"settled": True}} if r.path == "/v1/settle" else answer)
                began = time.monotonic()
                yield ask(server.url, check, mode), server, time.monotonic() - began

    def test_what_is_allowed_passes_and_is_told_what_is_left(self) -> None:
        body = {"allowed": True, "limit": 50, "remaining": 49, "reset_after_ms": 100}
        for response, _, _ in self.each({"body": body}):
            self.assertEqual(response.status, 204)
            self.assertEqual(
                (response.headers["x-ratelimit-limit"], response.headers["x-ratelimit-remaining"]), ("50", "49")
            )
            self.assertGreater(int(response.headers["x-ratelimit-reset"]), time.time() - 60)
            self.assertNotIn("retry-after", response.headers)

    def test_a_denial_is_a_429_with_a_wait_in_whole_seconds_rounded_up(self) -> None:
        tier: dict[str, Any] = {"mode": "enforce", "allowed": True}
        tiers = [
            {
                **tier,
                **{"rule_id": 12, "scope": "user", "allowed": False, "limit": 3, "remaining": 0.5},
                **{"window_ms": 30_000, "more_after_ms": 9001},
            },
            {
                **tier,
                **{"rule_id": 13, "scope": "ip", "limit": 50, "remaining": 7.5, "window_ms": 100, "more_after_ms": 0},
            },
            {**tier, "rule_id": 14, "scope": "global", "mode": "shadow", "window_ms": 1000},
        ]
        body: dict[str, Any] = {
            **{"allowed": False, "reason": "limit_exceeded", "limit": 3, "remaining": 0, "retry_after_ms": 9001},
            "tiers": tiers,
        }
        for response, _, _ in self.each({"status": 429, "body": body}):
            self.assertEqual((response.status, response.headers["retry-after"]), (429, "10"))
            self.assertEqual(response.headers["ratelimit-policy"], '"user-12";q=3;w=30, "ip-13";q=50;w=1')
            self.assertEqual(response.headers["ratelimit"], '"user-12";r=0;t=10, "ip-13";r=7;t=0')
            self.assertEqual(response.headers["content-type"], "application/problem+json")
            self.assertEqual(response.headers["cache-control"], "no-store")

    def test_a_wait_has_the_jitter_of_the_server_also_of_a_remembered_denial(self) -> None:
        for wait, jitter, want in (
            (100_000, None, "100"),
            (100_000, 0.01, "101"),
            (100_000, 12.34, "113"),
            (10_000, 10, "11"),
            (86_400_000, 50, "129600"),
            (100_000, 1000, "150"),
            (100_000, -1, "100"),
        ):
            body = {"allowed": False, "reason": "limit_exceeded", "retry_after_ms": wait, "retry_jitter_percent": jitter}
            server = Server(self, lambda r: {"status": 429, "body": body})
            with Sluice(server.url, TEST_KEY, timeout=PATIENCE) as limits:
                first, remembered = (
                    dict(_http.headers(limits.check(Check(user_id="42"))))["Retry-After"] for _ in range(2)
                )
                self.assertEqual((first, len(server.requests)), (want, 1))
                self.assertTrue(int(want) * 4 / 5 < int(remembered) <= int(want), remembered)

    def test_a_denial_has_the_types_of_the_draft(self) -> None:
        tier = Tier(12, "", "user", "", "enforce", False, 3, 0, 9, 9, 30, 9)
        denial = json.loads(_http.denial(Decision(False, 429, "limit_exceeded", retry_after=9, tiers=[tier])))
        self.assertEqual(denial["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded")
        self.assertEqual(denial["violated-policies"], ["user-12"])
        blocked = json.loads(_http.denial(Decision(False, 429, "blocked")))
        self.assertEqual(blocked["type"], "urn:sluice:problem:blocked")
        self.assertNotIn("violated-policies", blocked)

    def test_no_wait_is_promised_where_none_helps(self) -> None:
        body = {"allowed": False, "reason": "blocked", "retry_after_ms": None}
        for response, _, _ in self.each({"status": 429, "body": body}):
            self.assertEqual(response.status, 429)
            self.assertNotIn("retry-after", response.headers)

    def test_what_identify_leaves_out_passes_unasked(self) -> None:
        for response, server, _ in self.each({"status": 429}, None):
            self.assertEqual((response.status, server.requests), (204, []))

    def test_when_nobody_decides_open_passes_and_closed_answers_503(self) -> None:
        for response, _, _ in self.each({"fault": "reset"}):
            self.assertEqual(response.status, 204)
        for response, _, _ in self.each({"fault": "reset"}, mode="closed"):
            self.assertEqual((response.status, response.headers["retry-after"]), (503, "1"))

    def test_what_cannot_be_asked_is_a_400(self) -> None:
        for response, _, _ in self.each({"status": 400, "body": {"type": "urn:x"}}):
            self.assertEqual(response.status, 400)

    def test_it_waits_for_its_turn_and_releases_its_place(self) -> None:
        for response, server, took in self.each({"body": {"allowed": True, "delay_ms": 50, "reservation": "r1"}}):
            self.assertEqual(response.status, 204)
            self.assertGreaterEqual(took, 0.05)
            deadline = time.monotonic() + PATIENCE
            while len(server.requests) < 2 and time.monotonic() < deadline:
                time.sleep(0.001)
            self.assertEqual([request.path for request in server.requests], ["/v1/check", "/v1/settle"])
            self.assertEqual(server.requests[1].body, '{"reservation":"r1"}')

    def test_it_answers_before_the_release_has_an_answer(self) -> None:
        def view(request: Any) -> Any:
            return HttpResponse(status=204)

        async def aview(request: Any) -> Any:
            return HttpResponse(status=204)

        def django_sync(url: str) -> None:
            configure(url, Check(user_id="42"), "open")
            Django(view)(RequestFactory().get("/"))
            responded.set()

        def django_async(url: str) -> None:
            configure(url, Check(user_id="42"), "open")
            asyncio.run(with_background(Django(aview)(AsyncRequestFactory().get("/")), responded.set))

        def wsgi(url: str) -> None:
            with Sluice(url, TEST_KEY, timeout=PATIENCE) as limits:
                body: Any = Wsgi(lambda environ, start: [b""], limits, lambda environ: Check(user_id="42"))({}, print)
                body.close()
                responded.set()

        def asgi(url: str) -> None:
            async def nothing(*given: Any) -> Any:
                return None

            async def ask() -> None:
                async with AsyncSluice(url, TEST_KEY, timeout=PATIENCE) as limits:
                    await Asgi(nothing, limits, lambda scope: Check(user_id="42"))({"type": "http"}, nothing, nothing)
                    responded.set()

            asyncio.run(ask())

        for ask in (django_sync, django_async, wsgi, asgi):
            with self.subTest(ask.__name__):
                responded, released = threading.Event(), queue.Queue[bool]()

                def answer(received: Received) -> dict[str, Any]:
                    if received.path == "/v1/settle":
                        released.put(responded.wait(PATIENCE / 3))
                        return {"body": {"settled": True}}
                    return {"body": {"allowed": True, "reservation": "r1"}}

                ask(Server(self, answer).url)
                self.assertTrue(released.get(timeout=PATIENCE))

    def test_under_uwsgi_without_threads_it_releases_before_the_answer_ends(self) -> None:
        server = Server(self, lambda r: {"body": {"allowed": True, "reservation": "r1", "settled": True}})
        app: Any = lambda environ, start: [b""]
        with Sluice(server.url, TEST_KEY, timeout=PATIENCE) as limits, patch.dict(
            sys.modules, {"uwsgi": SimpleNamespace(opt={})}
        ), patch.object(_sync, "Thread", side_effect=AssertionError("uWSGI never runs it")):
            body: Any = Wsgi(app, limits, lambda environ: Check(user_id="42"))({}, print)
            body.close()
            self.assertEqual([request.path for request in server.requests], ["/v1/check", "/v1/settle"])

    def test_a_server_that_cannot_answer_a_socket_closes_it(self) -> None:
        server = Server(self, lambda r: {"status": 429, "body": {"allowed": False, "reason": "limit_exceeded"}})
        sent = ask_for_socket(server.url, Check(user_id="42"), "open", None)
        self.assertEqual(sent, [{"type": "websocket.close", "code": 1008}])

    def test_a_missing_django_setting_gets_a_sentence(self) -> None:
        settings.SLUICE = {"URL": "http://127.0.0.1:1"}
        with self.assertRaisesRegex(ImproperlyConfigured, r'Set SLUICE\["IDENTIFY"\] in the settings'):
            Django(lambda request: HttpResponse())


if __name__ == "__main__":
    unittest.main()
