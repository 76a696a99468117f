"""WSGI middleware: Flask, Bottle, Pyramid and the like."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Optional

from . import _http
from ._core import log
from ._sync import Sluice
from ._types import Check, SluiceError

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]
Identify = Callable[[Environ], Optional[Check]]


class SluiceMiddleware:
    """Limits a WSGI application: app.wsgi_app = SluiceMiddleware(app.wsgi_app, limits, identify).

    identify returns the check of a request; None lets it pass. A denied request gets 429, or 503 by the failure mode,
    with Retry-After and a problem document (RFC 9457); an invalid check gets 400. Answers get RateLimit,
    RateLimit-Policy and X-RateLimit-Limit, -Remaining and -Reset. A concurrency slot is released after the answer.
    """

    def __init__(self, app: App, limits: Sluice, identify: Identify) -> None:
        self._app, self._limits, self._identify = app, limits, identify

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        check = self._identify(environ)
        if check is None:
            return self._app(environ, start_response)
        try:
            decision = self._limits.check(check)
        except SluiceError as error:
            log.warning("Sluice refused a check: %s", error)
            return _answer(start_response, 400, [], _http.invalid())
        headers = _http.headers(decision)
        if not decision.allowed:
            self._limits._release_later(decision.reservation)
            return _answer(start_response, decision.status, headers, _http.denial(decision))
        if decision.delay > 0:
            time.sleep(decision.delay)

        def start(status: str, own: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*own, *headers], *more)

        try:
            body = self._app(environ, start)
        except BaseException:
            self._limits._release_later(decision.reservation)
            raise
        if decision.reservation is None:
            return body
        return _Closing(body, lambda: self._limits._release_later(decision.reservation))


class _Closing:
    """A body that does something when the server closes it, as WSGI servers must."""

    def __init__(self, body: Iterable[bytes], then: Callable[[], None]) -> None:
        self._body, self._then = body, then

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._then()


def _answer(
    start_response: StartResponse, status: int, headers: list[tuple[str, str]], body: bytes
) -> Iterable[bytes]:
    own = [("Content-Type", _http.PROBLEM), ("Content-Length", str(len(body)))]
    start_response(_http.status_line(status), [*own, *headers])
    return [body]
