"""What the middlewares answer."""

from __future__ import annotations

import json
import math
import time

from ._types import Decision

PROBLEM = "application/problem+json"
_PHRASES = {400: "Bad Request", 429: "Too Many Requests", 503: "Service Unavailable"}
_TYPES = {
    400: "about:blank",
    429: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    503: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
}


def headers(decision: Decision, now: float | None = None) -> list[tuple[str, str]]:
    """X-RateLimit-Limit, -Remaining and -Reset (in Unix seconds) if a limit applied, and Retry-After, in whole seconds,
    if the check is denied and a wait helps."""
    found = []
    if decision.limit is not None:
        full = (time.time() if now is None else now) + (decision.reset_after or 0)
        found = [
            ("X-RateLimit-Limit", str(decision.limit)),
            ("X-RateLimit-Remaining", str(decision.remaining or 0)),
            ("X-RateLimit-Reset", str(math.ceil(full))),
        ]
    wait = _wait(decision)
    return [*found, ("Retry-After", str(wait))] if wait else found


def _wait(decision: Decision) -> int:
    """Whole seconds, rounded up; 0 is no wait that helps."""
    return 0 if decision.allowed else math.ceil(round(decision.retry_after or 0, 6))


def denial(decision: Decision) -> bytes:
    wait = _wait(decision)
    return _problem(decision.status, f"Try again in {wait} s." if wait else "Waiting does not help.")


def invalid() -> bytes:
    return _problem(400, "The request cannot be identified.")


def _problem(status: int, detail: str) -> bytes:
    return json.dumps({"type": _TYPES[status], "title": _PHRASES[status], "status": status, "detail": detail}).encode()


def status_line(status: int) -> str:
    return f"{status} {_PHRASES[status]}"
