"""ASGI middleware: FastAPI, Starlette, Quart and the like."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Union

from . import _http
from ._async import AsyncSluice
from ._core import log
from ._types import Check, SluiceError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Identify = Callable[[Scope], Union[Check, None, Awaitable[Union[Check, None]]]]


class SluiceMiddleware:
    """Limits an ASGI application: app.add_middleware(SluiceMiddleware, limits=…, identify=…).

    identify returns the check of a request; None lets it pass. A denied request gets 429, or 503 by the failure mode,
    with Retry-After and a problem document (RFC 9457); an invalid check gets 400. Answers get RateLimit,
    RateLimit-Policy and X-RateLimit-Limit, -Remaining and -Reset. A concurrency slot is released after the answer.

    A WebSocket is checked when it begins, and holds its slot until it ends. Servers without the extension
    websocket.http.response answer each denied one with 403.
    """

    def __init__(self, app: App, limits: AsyncSluice, identify: Identify) -> None:
        self._app, self._limits, self._identify = app, limits, identify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return await self._app(scope, receive, send)
        found = self._identify(scope)
        check = await found if inspect.isawaitable(found) else found
        if check is None:
            return await self._app(scope, receive, send)
        try:
            decision = await self._limits.check(check)
        except SluiceError as error:
            log.warning("Sluice refused a check: %s", error)
            return await _refuse(scope, receive, send, 400, [], _http.invalid())
        headers = [(name.lower().encode(), value.encode()) for name, value in _http.headers(decision)]
        try:
            if not decision.allowed:
                return await _refuse(scope, receive, send, decision.status, headers, _http.denial(decision))
            if decision.delay > 0:
                await asyncio.sleep(decision.delay)

            async def send_with_headers(message: Message) -> None:
                if message["type"] in ("http.response.start", "websocket.accept"):
                    message = {**message, "headers": [*message.get("headers", ()), *headers]}
                await send(message)

            await self._app(scope, receive, send_with_headers)
        finally:
            self._limits._release_later(decision.reservation)


async def _refuse(
    scope: Scope, receive: Receive, send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()  # websocket.connect, before which nothing may be sent
        if "websocket.http.response" not in (scope.get("extensions") or {}):
            return await send({"type": "websocket.close", "code": 1008})
        kind = "websocket.http.response"
    headers = [(b"content-type", _http.PROBLEM.encode()), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": kind + ".start", "status": status, "headers": headers})
    await send({"type": kind + ".body", "body": body})
