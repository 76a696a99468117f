"""Django middleware, sync and async.

In settings.py::

    MIDDLEWARE = [..., "django.contrib.auth.middleware.AuthenticationMiddleware", "sluice.django.SluiceMiddleware"]
    SLUICE = {
        "URL": "http://127.0.0.1:8080",
        "KEY": os.environ["SLUICE_KEY"],
        "IDENTIFY": "shop.limits.identify",  # takes the request, returns a sluice.Check or None
        # "OPTIONS": {"timeout": 0.1, "failure_mode": "closed"},  # of sluice.Sluice
    }
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.utils.decorators import sync_and_async_middleware
from django.utils.module_loading import import_string

from . import _http
from ._async import AsyncSluice
from ._core import log
from ._sync import Sluice
from ._types import Decision, SluiceError


@sync_and_async_middleware
def SluiceMiddleware(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:  # a class would need two __call__
    """Limits all views. A denied request is answered with 429, or 503 if nobody could decide, with Retry-After and a
    problem document (RFC 9457); one whose check is not valid with 400. Answers carry X-RateLimit-Limit, -Remaining and
    -Reset. A place of a concurrency rule is released when the view returns."""
    options = settings.SLUICE
    identify = options["IDENTIFY"]
    if isinstance(identify, str):
        identify = import_string(identify)
    more = options.get("OPTIONS", {})

    if asyncio.iscoroutinefunction(get_response):
        alimits = AsyncSluice(options["URL"], options["KEY"], **more)

        async def alimited(request: Any) -> Any:
            found = identify(request)
            check = await found if inspect.isawaitable(found) else found
            if check is None:
                return await get_response(request)
            try:
                decision = await alimits.check(check)
            except SluiceError as error:
                log.warning("Sluice refused a check: %s", error)
                return _invalid()
            try:
                if not decision.allowed:
                    return _with_headers(_denied(decision), decision)
                if decision.delay > 0:
                    await asyncio.sleep(decision.delay)
                return _with_headers(await get_response(request), decision)
            finally:
                try:
                    await alimits.release(decision.reservation)
                except SluiceError:
                    pass  # it is freed after its max_hold

        return alimited

    limits = Sluice(options["URL"], options["KEY"], **more)

    def limited(request: Any) -> Any:
        check = identify(request)
        if check is None:
            return get_response(request)
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
            return _with_headers(get_response(request), decision)
        finally:
            try:
                limits.release(decision.reservation)
            except SluiceError:
                pass  # it is freed after its max_hold

    return limited


def _denied(decision: Decision) -> Any:
    return HttpResponse(_http.denial(decision), status=decision.status, content_type=_http.PROBLEM)


def _invalid() -> Any:
    return HttpResponse(_http.invalid(), status=400, content_type=_http.PROBLEM)


def _with_headers(response: Any, decision: Decision) -> Any:
    for name, value in _http.headers(decision):
        response[name] = value
    return response
