"""What the clients for threads and for asyncio share: everything but waiting.

Each operation is a generator that yields steps, and receives their results. The clients add how to wait for them.
"""

from __future__ import annotations

import json
import logging
import re
import time
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, Union
from urllib.parse import SplitResult, quote, urlsplit

import httpx

from ._breaker import LONGEST, Breaker
from ._memory import Memory
from ._queue import Call
from ._types import Check, Decision, Recorded, Settlement, SluiceError
from ._version import __version__
from ._wire import (
    Answer,
    Question,
    amounts,
    decode_batch,
    decode_check,
    decode_recorded,
    decode_report,
    decode_settlement,
    encode,
    encode_batch,
    encode_record,
    named,
    problem,
    refuse_invalid,
    tokens,
)

#: Decides checks that the server does not: open lets them pass, closed denies them with status 503.
FailureMode = Literal["open", "closed"]

#: Multiplies the time-out for calls that no user waits for.
PATIENT_TIMEOUTS = 10

#: Seconds without a failure before the log says that the server decides again, so that occasional failures are one
#: line.
QUIET_AFTER = 1.0

#: Idle connections close before the server closes them after two minutes, because a request on one would be lost.
LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=30)

log = logging.getLogger("sluice")


class Ask(NamedTuple):
    """A step: ask a question, alone or in a batch. The result is a Decision."""

    question: Question


class Pause(NamedTuple):
    """A step: wait for so many seconds."""

    seconds: float


class Post(NamedTuple):
    """A step: send a request once. The result is an Answer."""

    method: str
    path: str
    body: str | None
    seconds: float  #: within which it must be answered


Step = Union[Ask, Pause, Post]
#: A timer later than this part of the time-out shows that the process had no time for answers.
LATE = 1 / 8
#: The process reads answers in so many pauses of so many seconds.
PAUSE, PAUSES = 0.002, 2

#: Reads of an answer that may begin after its time.
LATE_READS = 4

#: The errors of requests without an answer. A bad URL is an InvalidURL or a ValueError.
NO_ANSWER = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError, RuntimeError, ValueError)

RECORD_PAUSES = (0.1, 0.4)

T = TypeVar("T")
Steps = Generator[Step, Any, T]


@dataclass
class Observation:
    """The argument of on_decision."""

    check: Check
    decision: Decision | None  #: None if the check raised
    error: BaseException | None
    took: float  #: the caller's wait, in seconds


class Deadline(dict[str, float]):
    """One time-out for a whole request. httpx has one for each step, which gets the time that is left."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._at = time.monotonic() + seconds
        self._late_reads = 0

    def left(self) -> float:
        return max(0.001, self._at - time.monotonic())

    def check(self) -> None:
        """Raises some reads after the end, so that answers that came while the thread had no time are read. httpx gives
        each read of a header or a body the time that was left at the first one."""
        if time.monotonic() > self._at:
            self._late_reads += 1
            if self._late_reads > LATE_READS:
                raise httpx.ReadTimeout("The answer comes too slowly.")

    def get(self, key: str, default: Any = None) -> Any:  # httpcore asks at the beginning of a step
        return self.left()

    def __getitem__(self, key: str) -> float:
        return self.left()


def _address(url: str) -> SplitResult | None:
    """The parts of a URL, or None for one that the HTTP library or the resolver would change."""
    try:
        parts = urlsplit(url)
        asked = httpx.Request("GET", url.rstrip("/")).url
        host = asked.raw_host.decode().lower()
        asked.host, host.encode("idna")  # as the HTTP library and the resolver do
        taken = parts.scheme in ("http", "https") and parts.hostname == host != "" and parts.port != 0
    except (ValueError, httpx.InvalidURL):
        return None
    return parts if taken and re.fullmatch("[!-~]+", url) else None


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
        parts = _address(url)
        if parts is None:
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
        self.breaker = Breaker(timeout)
        self.batches = Breaker(timeout)  # of the callers' own: up to 1,000 checks may take longer than the time-out
        self._headers = {
            "authorization": f"Bearer {key}",
            "user-agent": f"sluice-python/{__version__}",
            "accept-encoding": "identity",
        }
        self._on_decision = on_decision
        self._failed_checks = 0  # since the log said last that the server decides
        self._failed_last = 0.0

    def check(self, check: Check, hold: float | None = None) -> Steps[Decision]:
        began = time.monotonic()
        try:
            decision = yield from self._decide(check, hold)
        except BaseException as error:
            self._observe(check, began, None, error)
            raise
        self._observe(check, began, decision)
        return decision

    def _decide(self, check: Check, hold: float | None) -> Steps[Decision]:
        refuse_invalid(check, hold)
        question = encode(check, hold)
        recalled = self.memory.recall(question)
        if recalled is not None:
            return recalled
        try:
            decision: Decision = yield Ask(question)
        except SluiceError as error:
            recalled = None if error.kind == "request" else self.memory.recall(question)
            return recalled or self.fall_back(error)  # it may have been learned while this check waited
        if decision.source == "server":
            self._recovered()
        return decision

    def check_batch(self, checks: list[Check]) -> Steps[list[Decision]]:
        if not checks:
            return []
        began = time.monotonic()
        questions = [encode(check) for check in checks]
        try:
            decisions = yield from self._together(questions)
            self._recovered()
        except SluiceError as error:
            decisions = [self.fall_back(error) for _ in checks]
        for check, decision in zip(checks, decisions):
            self._observe(check, began, decision)
        return decisions

    def settle(self, reservation: str | None, cost: float | Mapping[str, float]) -> Steps[Settlement]:
        return self.finish(reservation, cost_members(cost))

    def extend(self, reservation: str | None, cost: float | Mapping[str, float] | None) -> Steps[Settlement]:
        return self.finish(reservation, {"extend": True, **({} if cost is None else cost_members(cost))})

    def finish(self, reservation: str | None, members: dict[str, Any]) -> Steps[Settlement]:
        if not reservation:
            return Settlement(False)
        body = json.dumps({"reservation": reservation, **members}, separators=(",", ":"))
        return decode_settlement((yield from self._patient("POST", "/v1/settle", body)))

    def record(self, check: Check, cost: float, id: str | None) -> Steps[Recorded]:
        body = encode_record(check, cost, id)
        for pause in RECORD_PAUSES if id else ():
            try:
                return decode_recorded((yield from self._patient("POST", "/v1/check", body)))
            except SluiceError as error:
                if error.kind not in ("timeout", "connection") and error.status < 500:
                    raise
            yield Pause(pause)
        return decode_recorded((yield from self._patient("POST", "/v1/check", body)))

    def report(self, backend: str, latencies: Iterable[float], errors: int) -> Steps[bool]:
        return decode_report((yield from self._patient("POST", "/v1/report", report_body(backend, latencies, errors))))

    def usage(self, user_id: str | int, plan: str | None) -> Steps[Any]:
        path = f"/v1/usage?user_id={quote(str(user_id), safe='')}"
        if plan:
            path += f"&plan={quote(plan, safe='')}"
        return self._patient("GET", path, None)

    def tell(self, batch: Sequence[Call], deadline: float) -> Steps[SluiceError | None]:
        """Sends and ends a batch, and returns why the request failed."""
        left = deadline - time.monotonic()
        try:
            if len(batch) == 1:
                decisions = [decode_check((yield Post("POST", "/v1/check", batch[0].question.body, left)))]
            else:
                decisions = yield from self._many([call.question for call in batch], left)
            for call, decision in zip(batch, decisions):
                self.memory.learn(call.question, decision)
                call.answer = decision
                call.end(decision)
            return None
        except SluiceError as error:
            rest = batch
            if error.kind == "request" and len(batch) > 1:
                # Nothing was taken, so the valid checks are sent again.
                rest = []
                for i, call in enumerate(batch):
                    own = named(error, i)
                    if own is None:
                        rest.append(call)
                    else:
                        call.end(own)
                if not rest:
                    return None
                if len(rest) < len(batch):
                    return (yield from self.tell(rest, deadline))
            for call in rest:
                call.end(error)
            return error

    def _together(self, questions: list[Question]) -> Steps[list[Decision]]:
        self.batches.admit()
        try:
            decisions = yield from self._many(questions, self.timeout)
        except SluiceError as error:
            self.batches.ended(is_answer(error))
            raise
        self.batches.ended(True)
        return decisions

    def _many(self, questions: list[Question], seconds: float) -> Steps[list[Decision]]:
        return decode_batch((yield Post("POST", "/v1/check/batch", encode_batch(questions), seconds)), len(questions))

    def _patient(self, method: str, path: str, body: str | None) -> Steps[Any]:
        answer: Answer = yield Post(method, path, body, PATIENT_TIMEOUTS * self.timeout)
        if answer.status != 200 or answer.body is None:
            raise problem(answer)
        return answer.body

    def request(self, post: Post) -> tuple[httpx.Request, Deadline]:
        headers, content = self._headers, None
        if post.body is not None:
            headers, content = {**headers, "content-type": "application/json"}, post.body.encode()
        request = httpx.Request(post.method, self.base + post.path, headers=headers, content=content)
        deadline = Deadline(post.seconds)
        request.extensions = {**request.extensions, "timeout": {}}
        return request, deadline

    @staticmethod
    def answer(response: httpx.Response, content: bytes) -> Answer:
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        body = None
        if kind in ("application/json", "application/problem+json"):
            try:
                body = json.loads(content)
            except ValueError:
                pass  # problem() says what it is
        return Answer(response.status_code, body, response.headers.get("retry-after"))

    @staticmethod
    def failure(error: Exception) -> SluiceError:
        if isinstance(error, SluiceError):
            return error
        if isinstance(error, httpx.TimeoutException):
            return SluiceError("timeout", "No answer in time.")
        return SluiceError("connection", f"{type(error).__name__}: {error}")

    def fall_back(self, error: SluiceError) -> Decision:
        """Decides by the failure mode, unless the request is invalid."""
        if error.kind == "request":
            raise error
        self._failed_checks += 1
        self._failed_last = self.memory.now()
        if self._failed_checks == 1:
            log.warning(
                "Sluice does not decide; checks are decided by the failure mode, %s: %s", self.failure_mode, error
            )
        if self.failure_mode == "open":
            return Decision(True, 200, retry_after=0, source="failure_mode", error=error)
        return Decision(False, 503, "sluice_unavailable", retry_after=1, source="failure_mode", error=error)

    def _recovered(self) -> None:
        if self._failed_checks and self.memory.now() - self._failed_last >= QUIET_AFTER:
            log.info("Sluice decides again, after %d checks", self._failed_checks)
            self._failed_checks = 0

    def _observe(
        self, check: Check, began: float, decision: Decision | None, error: BaseException | None = None
    ) -> None:
        if self._on_decision is not None:
            self._on_decision(Observation(check, decision, error, time.monotonic() - began))


# In milliseconds; the last bucket, inf, is above them.
LATENCY_BOUNDS = (
    1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500, 2000, 3000, 5000, 7000,
    10000, 15000, 20000, 30000, 60000,
)  # fmt: skip


def pauses(due: float, timeout: float, now: Callable[[], float]) -> Generator[float, None, None]:
    """Yields pauses until the process has had time to read answers, because after a stall timers come before answers
    that have arrived. due is when the wait should have ended."""
    calm = min(PAUSE, LATE * timeout)
    in_time, lates, pause = 0, 0, calm
    if now() - due > LATE * timeout:  # the time begins anew, since the request may not even have been sent
        pause = timeout
    while in_time < PAUSES and lates < LONGEST:
        end = now() + pause
        yield pause
        if now() - end > LATE * timeout:
            in_time, lates, pause = 0, lates + 1, timeout
        else:
            in_time, pause = in_time + 1, calm


def report_body(backend: str, latencies: Iterable[float], errors: int) -> str:
    counts: dict[str, int] = {}
    for latency in latencies:
        place = bisect_left(LATENCY_BOUNDS, latency * 1000)
        bucket = str(LATENCY_BOUNDS[place]) if place < len(LATENCY_BOUNDS) else "inf"
        counts[bucket] = counts.get(bucket, 0) + 1
    report = {"backend": backend, "requests": sum(counts.values()), "errors": errors, "latency_ms": counts}
    return json.dumps({"reports": [report]})


def is_answer(error: SluiceError | None) -> bool:
    """Whether the server answered: a refusal is an answer."""
    return error is None or error.kind in ("request", "key")


def cost_members(cost: float | Mapping[str, float]) -> dict[str, Any]:
    return {"costs": amounts(cost)} if isinstance(cost, Mapping) else {"cost": tokens(cost)}
