from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple


@dataclass
class Check:
    """A check: whether a request may pass. Every field is optional; rules match by those that are set."""

    user_id: str | int | None = None  #: the limited user; at most 256 bytes
    plan: str | None = None  #: by default the user's own, else the tenant's
    endpoint: str | None = None  #: a route template such as /orders/{id}; at most 1024 bytes
    method: str | None = None  #: in capital letters
    ip: str | None = None  #: IPv4 or IPv6
    cost: float = 1  #: requests to count, at most 1e9, rounded to 6 decimals; 0 looks and takes nothing
    attributes: Mapping[str, str] = field(default_factory=dict)  #: for rules with attr.<name>; at most 16
    costs: Mapping[str, float] = field(default_factory=dict)  #: of up to 7 other meters, such as input_tokens or usd


#: The server, a cached denial, or the failure mode.
Source = Literal["server", "memory", "failure_mode"]


@dataclass
class Tier:
    """A rule's result."""

    rule_id: int
    name: str
    scope: str
    key_pattern: str
    mode: str  #: enforce, or shadow: it reports and never denies
    allowed: bool
    limit: int | None
    remaining: float | None
    retry_after: float | None  #: seconds
    reset_after: float | None  #: seconds
    window: float | None = None  #: seconds that earn limit; None if RateLimit-Policy has no item for the tier
    more_after: float | None = None  #: seconds until remaining grows
    meter: str | None = None  #: None for requests


@dataclass
class Decision:
    """The answer to a check. Times are in seconds."""

    allowed: bool
    status: int  #: 200 allowed, 429 denied, 503 denied by the failure mode
    reason: str | None = None  #: of a denial, such as limit_exceeded
    plan: str | None = None  #: in force
    retry_after: float | None = None  #: until the same check may pass; None if waiting does not help, 0 if allowed
    delay: float = 0  #: that an allowed caller must wait (leaky buckets); middleware does
    limit: int | None = None  #: burst of the limit that denied, else of the one with the fewest tokens left
    remaining: int | None = None  #: whole tokens
    reset_after: float | None = None  #: until its bucket is full
    violated_tier: str | None = None  #: scope of the rule that denied: user, endpoint, global or ip
    violated_rule: str | None = None  #: the pattern
    violated_rule_id: int | None = None
    tiers: list[Tier] = field(default_factory=list)
    reservation: str | None = None  #: for settle, release, cancel and extend
    degraded: bool = False  #: decided without the store, by the rules' failure modes
    source: Source = "server"
    error: SluiceError | None = None  #: why the server did not decide, if the failure mode did
    retry_jitter_percent: float = 0  #: added by middleware to Retry-After, 0 to 50, so that callers spread


@dataclass
class Settlement:
    """The result of ending or extending a reservation."""

    settled: bool  #: False: it was settled before, was extended, has expired, or there was none
    charged: float = 0  #: requests that were charged in the end; 0 if it was not settled
    extended: bool = False  #: extend found it open
    costs: dict[str, float] = field(default_factory=dict)  #: charged of other meters
    denied: bool = False  #: extend asked for more than is left; the reservation is open, and as it was


@dataclass
class Recorded:
    """The result of a record."""

    recorded: bool  #: False: its id was recorded before
    charged: dict[int, float] = field(default_factory=dict)  #: tokens, by the id of each rule that was charged


#: timeout: no answer; connection: none; unavailable: the server cannot decide; protocol: the answer is not Sluice's;
#: key: wrong; request: invalid.
ErrorKind = Literal["timeout", "connection", "unavailable", "protocol", "key", "request"]


class FieldError(NamedTuple):
    """A mistake in a value of a request."""

    pointer: str  #: a JSON pointer (RFC 6901), such as /user_id
    detail: str


class SluiceError(Exception):
    """Why the server did not decide, without the key and the URL."""

    def __init__(
        self,
        kind: ErrorKind,
        detail: str,
        *,
        status: int = 0,
        type: str = "",
        request_id: str = "",
        fields: Sequence[FieldError] = (),
    ) -> None:
        self.kind = kind
        self.detail = detail
        self.status = status  #: the HTTP status; 0 if there was no answer
        self.type = type  #: of the problem document (RFC 9457), such as urn:sluice:problem:unauthorized; or ""
        self.request_id = request_id  #: as in the server's log; or ""
        self.fields = tuple(fields)
        answered = f" ({status})" if status else ""
        named = "".join(f"; {pointer} {text}" for pointer, text in self.fields)
        super().__init__(f"sluice: {kind}{answered}: {detail}{named}")

    def __reduce__(self) -> tuple[Any, ...]:  # copy and pickle would call __init__ with the message alone
        return _again, (self.kind, self.detail, self.status, self.type, self.request_id, self.fields)


def _again(
    kind: ErrorKind, detail: str, status: int, type: str, request_id: str, fields: Sequence[FieldError]
) -> SluiceError:
    return SluiceError(kind, detail, status=status, type=type, request_id=request_id, fields=fields)
