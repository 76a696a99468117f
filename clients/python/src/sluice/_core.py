"""What the clients for threads and for asyncio share: everything but waiting."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

import httpx

from ._memory import Memory
from ._types import Check, Decision, SluiceError
from ._version import __version__
from ._wire import Answer, tokens

#: Decides checks that the server does not: open lets them pass, closed denies them with status 503.
FailureMode = Literal["open", "closed"]

#: How many requests are in flight before checks wait to share the next one. Two keep the server busy while one
#: answer travels.
IN_FLIGHT = 2
#: Caps the requests that are added while those in flight hang.
MOST_IN_FLIGHT = 16
#: A check that waits a quarter of the time-out starts another request: those in flight hang, and others may not.
STALL = 1 / 4
#: After how many failures in a row only one request at a time is risked, as a probe, and the failure mode decides
#: the other checks at once.
FAILURES_UNTIL_PROBING = 5
MAX_BATCH = 256
#: Half of what the server takes, in bytes: bodies are ASCII.
MAX_BATCH_BYTES = 512 << 10
#: How many time-outs calls wait that no user waits for.
PATIENT_TIMEOUTS = 10

#: Idle connections close before the server closes them, which is after two minutes: a request on a connection that is
#: being closed is lost.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=30)

log = logging.getLogger("sluice")


@dataclass
class Observation:
    """What on_decision is told of a check."""

    check: Check
    decision: Decision | None  #: None if the check raised
    error: BaseException | None
    took: float  #: the caller's wait, in seconds


class Deadline(dict[str, float]):
    """One time-out for a whole request, where httpx has one for each step: each gets what is left."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        return max(0.001, self._at - time.monotonic())

    def get(self, key: str, default: Any = None) -> Any:  # httpcore asks at the beginning of a step
        return self.left()

    def __getitem__(self, key: str) -> float:
        return self.left()


class Core:
    def __init__(
        self,
        url: str,
        key: str,
        timeout: float,
        failure_mode: FailureMode,
        denial_memory: float,
        batch: bool,
        on_decision: Callable[[Observation], None] | None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("sluice: url must be the check endpoint's address, such as http://127.0.0.1:8080")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ValueError("sluice: url must be an address alone; the key goes into key")
        if not re.fullmatch(r"[!-~]+", key):  # the HTTP library's own message would name it
            raise ValueError("sluice: key must be an API key, slk_…")
        if not timeout > 0:
            raise ValueError(f"sluice: timeout is {timeout}; it must be seconds above 0")
        if failure_mode not in ("open", "closed"):
            raise ValueError(f"sluice: failure_mode is {failure_mode!r}; it must be open or closed")
        self.base = url.rstrip("/")
        self.timeout = timeout
        self.batch = batch
        self.failure_mode = failure_mode
        self.memory = Memory(denial_memory)
        self._headers = {
            "authorization": f"Bearer {key}",
            "user-agent": f"sluice-python/{__version__}",
            "accept-encoding": "identity",
        }
        self._on_decision = on_decision
        self._failed_checks = 0  # since the server decided last

    def request(self, method: str, path: str, body: str | None, seconds: float) -> httpx.Request:
        headers, content = self._headers, None
        if body is not None:
            headers, content = {**headers, "content-type": "application/json"}, body.encode()
        request = httpx.Request(method, self.base + path, headers=headers, content=content)
        request.extensions = {**request.extensions, "timeout": Deadline(seconds)}
        return request

    @staticmethod
    def answer(response: httpx.Response) -> Answer:
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        body = None
        if kind in ("application/json", "application/problem+json"):
            try:
                body = json.loads(response.content)
            except ValueError:
                pass  # problem() says what it is
        return Answer(response.status_code, body, response.headers.get("retry-after"))

    @staticmethod
    def failure(error: Exception) -> SluiceError:
        """Classifies an error of the transport."""
        if isinstance(error, SluiceError):
            return error
        if isinstance(error, httpx.TimeoutException):
            return SluiceError("timeout", "No answer in time.")
        return SluiceError("connection", f"{type(error).__name__}: {error}")

    def fall_back(self, error: SluiceError) -> Decision:
        """Decides by the failure mode, unless it is the request that is wrong."""
        if error.kind == "request":
            raise error
        self._failed_checks += 1
        if self._failed_checks == 1:
            log.warning(
                "Sluice does not decide; checks are decided by the failure mode, %s: %s", self.failure_mode, error
            )
        if self.failure_mode == "open":
            return Decision(True, 200, retry_after=0, source="failure_mode", error=error)
        return Decision(False, 503, "sluice_unavailable", retry_after=1, source="failure_mode", error=error)

    def recovered(self) -> None:
        if self._failed_checks:
            log.info("Sluice decides again, after %d checks", self._failed_checks)
            self._failed_checks = 0

    def observe(
        self, check: Check, began: float, decision: Decision | None, error: BaseException | None = None
    ) -> None:
        if self._on_decision is not None:
            self._on_decision(Observation(check, decision, error, time.monotonic() - began))


def settle_body(reservation: str, members: dict[str, Any]) -> str:
    return json.dumps({"reservation": reservation, **members}, separators=(",", ":"))


def settle_cost(cost: float) -> dict[str, Any]:
    return {"cost": tokens(cost)}


def usage_path(user_id: str | int) -> str:
    return f"/v1/usage?user_id={quote(str(user_id), safe='')}"


def is_answer(error: SluiceError | None) -> bool:
    """Whether the server is well: a refusal is an answer."""
    return error is None or error.kind in ("request", "key")


def batch_size(bodies: list[str]) -> int:
    """How many of the bodies fit in a batch."""
    size = 0
    for n, body in enumerate(bodies[:MAX_BATCH]):
        size += len(body)
        if n > 0 and size > MAX_BATCH_BYTES:
            return n
    return min(len(bodies), MAX_BATCH)
