"""The answers of middleware."""

from __future__ import annotations

import json
import math
import time

from ._types import Decision, Tier

PROBLEM = "application/problem+json"
_PHRASES = {400: "Bad Request", 429: "Too Many Requests", 503: "Service Unavailable"}
_TYPES = {
    400: "about:blank",
    429: "https://iana.org/assignments/http-problem-types#quota-exceeded",
    503: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
}


MAX_JITTER_PERCENT = 50

#: The spelling of draft-ietf-httpapi-ratelimit-headers-11.
POLICY_FIELD, POLICY_ITEM = "RateLimit-Policy", '"{}";q={};w={}'
LIMIT_FIELD, LIMIT_ITEM = "RateLimit", '"{}";r={};t={}'


def _seconds(seconds: float | None) -> int:
    """Rounds up, but not for what a binary fraction adds."""
    return math.ceil(round(seconds or 0, 6))


def _policies(decision: Decision) -> list[tuple[str, Tier]]:
    """The tiers with an item in RateLimit-Policy, and their names."""
    return [(f"{t.scope}-{t.rule_id}", t) for t in decision.tiers if t.mode == "enforce" and t.window]


def headers(decision: Decision, now: float | None = None) -> list[tuple[str, str]]:
    """RateLimit and RateLimit-Policy; if a limit applied, X-RateLimit-Limit, -Remaining and -Reset (in Unix seconds);
    Retry-After, in whole seconds, for a denial that a wait ends. Denials must not be stored."""
    found = []
    if named := _policies(decision):
        policy = [POLICY_ITEM.format(name, t.limit, max(1, _seconds(t.window))) for name, t in named]
        left = [LIMIT_ITEM.format(name, max(0, int(t.remaining or 0)), _seconds(t.more_after)) for name, t in named]
        found += [(POLICY_FIELD, ", ".join(policy)), (LIMIT_FIELD, ", ".join(left))]
    if decision.limit is not None:
        full = (time.time() if now is None else now) + (decision.reset_after or 0)
        found += [
            ("X-RateLimit-Limit", str(decision.limit)),
            ("X-RateLimit-Remaining", str(decision.remaining or 0)),
            ("X-RateLimit-Reset", str(math.ceil(full))),
        ]
    if not decision.allowed:
        found.append(("Cache-Control", "no-store"))
    if wait := _wait(decision):
        found.append(("Retry-After", str(wait)))
    return found


def _wait(decision: Decision) -> int:
    """Whole seconds with the jitter, rounded up; 0: no wait helps."""
    if decision.allowed or not decision.retry_after:
        return 0
    jitter = round(min(max(0, decision.retry_jitter_percent), MAX_JITTER_PERCENT) * 100)
    return _seconds(decision.retry_after * (10_000 + jitter) / 10_000)


def denial(decision: Decision) -> bytes:
    wait = _wait(decision)
    type = _TYPES[decision.status]
    if decision.reason in ("blocked", "cost_exceeds_limit"):  # the draft has no type for them
        type = "urn:sluice:problem:" + decision.reason.replace("_", "-")
    violated = [name for name, tier in _policies(decision) if not tier.allowed]
    detail = f"Try again in {wait} s." if wait else "Waiting does not help."
    return _problem(decision.status, detail, type, violated)


def invalid() -> bytes:
    return _problem(400, "The request cannot be identified.", _TYPES[400], [])


def _problem(status: int, detail: str, type: str, violated: list[str]) -> bytes:
    more = {"violated-policies": violated} if violated else {}
    return json.dumps({"type": type, "title": _PHRASES[status], "status": status, "detail": detail, **more}).encode()


def status_line(status: int) -> str:
    return f"{status} {_PHRASES[status]}"
