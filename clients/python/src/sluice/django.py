"""Limits for all views, or for one; sync and async.

In settings.py::

    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware", "sluice.django.SluiceMiddleware"]
    SLUICE = {
        "URL": "http://127.0.0.1:8080",
        "KEY": os.environ["SLUICE_KEY"],
        "IDENTIFY": "shop.limits.identify",  # of the middleware: takes the request, returns a sluice.Check or None
        # "OPTIONS": {"timeout": 0.1, "failure_mode": "closed"},  # of sluice.Sluice
    }

For one view, beside the middleware or without it::

    @limit(lambda request: Check(user_id=request.user.pk, endpoint="/export", cost=10))
    def export(request): ...
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse
from django.utils.decorators import sync_and_async_middleware
from django.utils.module_loading import import_string

from . import _http
from ._async import AsyncSluice
from ._core import log
from ._sync import Sluice
from ._types import Decision, SluiceError

View = TypeVar("View", bound=Callable[..., Any])


@sync_and_async_middleware
def SluiceMiddleware(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:  # a class would need two __call__
    """Limits all views. A denied request gets 429, or 503 by the failure mode, with Retry-After and a problem document
    (RFC 9457); an invalid check gets 400. Answers get RateLimit, RateLimit-Policy and X-RateLimit-Limit, -Remaining and
    -Reset. A concurrency slot is released when the view returns."""
    identify = _setting("IDENTIFY")
    if isinstance(identify, str):
        identify = import_string(identify)
    _setting("URL"), _setting("KEY")  # fail when the server starts
    return _limited(get_response, identify, _Clients())


def limit(identify: Callable[[Any], Any]) -> Callable[[View], View]:
    """Limits one view like SluiceMiddleware. identify takes the request and returns a Check or None. All decorated
    views share a client."""

    def decorate(view: View) -> View:
        return functools.wraps(view)(_limited(view, identify, _shared))  # type: ignore[return-value]

    return decorate


def _setting(name: str) -> Any:
    try:
        return settings.SLUICE[name]
    except (AttributeError, KeyError):
        raise ImproperlyConfigured(f'Set SLUICE["{name}"] in the settings; sluice.django says how.') from None


class _Clients:
    """The clients of a middleware or of all decorated views."""

    @functools.cached_property
    def sync(self) -> Sluice:
        return Sluice(_setting("URL"), _setting("KEY"), **settings.SLUICE.get("OPTIONS", {}))

    @functools.cached_property
    def asynchronous(self) -> AsyncSluice:
        return AsyncSluice(_setting("URL"), _setting("KEY"), **settings.SLUICE.get("OPTIONS", {}))


_shared = _Clients()


def _limited(view: Callable[..., Any], identify: Callable[[Any], Any], clients: _Clients) -> Callable[..., Any]:
    if asyncio.iscoroutinefunction(view):

        async def alimited(request: Any, *args: Any, **kwargs: Any) -> Any:
            found = identify(request)
            check = await found if inspect.isawaitable(found) else found
            if check is None:
                return await view(request, *args, **kwargs)
            limits: AsyncSluice | Sluice
            try:
                if isinstance(request, ASGIRequest):
                    limits = clients.asynchronous
                    decision = await limits.check(check)
                else:  # under WSGI each request has an event loop of its own, which ends before a release could
                    limits = clients.sync
                    decision = await sync_to_async(limits.check, thread_sensitive=False)(check)
            except SluiceError as error:
                log.warning("Sluice refused a check: %s", error)
                return _invalid()
            try:
                if not decision.allowed:
                    return _with_headers(_denied(decision), decision)
                if decision.delay > 0:
                    await asyncio.sleep(decision.delay)
                return _with_headers(await view(request, *args, **kwargs), decision)
            finally:
                limits._release_later(decision.reservation)

        return alimited

    def limited(request: Any, *args: Any, **kwargs: Any) -> Any:
        check = identify(request)
        if check is None:
            return view(request, *args, **kwargs)
        limits = clients.sync
        try:
            decision = limits.check(check)
        except SluiceError as error:
            log.warning("Sluice refused a check: %s", error)
            return _invalid()
        try:
            if not decision.allowed:
                return _with_headers(_denied(decision), decision)
            if decision.delay > 0:
                time.sleep(decision.delay)
            return _with_headers(view(request, *args, **kwargs), decision)
        finally:
            limits._release_later(decision.reservation)

    return limited


def _denied(decision: Decision) -> Any:
    return HttpResponse(_http.denial(decision), status=decision.status, content_type=_http.PROBLEM)


def _invalid() -> Any:
    return HttpResponse(_http.invalid(), status=400, content_type=_http.PROBLEM)


def _with_headers(response: Any, decision: Decision) -> Any:
    for name, value in _http.headers(decision):
        response[name] = value
    return response
