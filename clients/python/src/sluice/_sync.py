from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable
from threading import Event, Lock
from types import TracebackType
from typing import Any

import httpx

from . import _core
from ._core import Core, FailureMode, Observation
from ._types import Check, Decision, Settlement, SluiceError
from ._wire import (
    Answer,
    Question,
    decode_batch,
    decode_check,
    decode_settlement,
    encode,
    encode_batch,
    named,
    problem,
)


class _Call:
    """A check that waits for its share of a request."""

    def __init__(self, question: Question, timeout: float) -> None:
        self.question = question
        self.deadline = time.monotonic() + timeout
        self.event = Event()
        self.leads: list[_Call] | None = None  # the batch that this caller is to send
        self.decision: Decision | None = None
        self.error: SluiceError | None = None

    def end(self, decision: Decision | None, error: SluiceError | None) -> None:
        self.decision, self.error = decision, error
        self.event.set()

    def result(self) -> Decision:
        if self.decision is None:
            raise self.error or SluiceError("timeout", "No answer in time.")
        return self.decision


class Sluice:
    """Asks one server with one key. Make one per process; threads may share it. It survives a fork.

    url is the check endpoint's, key an API key with the permission check. timeout is how many seconds a check waits at
    most, until failure_mode decides; settling and usage, for which there is no failure mode, wait ten times as long.
    denial_memory is how many seconds a denial is remembered at most; 0 is not at all. batch says whether concurrent
    checks share requests. on_decision is called after each check, for metrics. http is an httpx.Client of your own, for
    example with certificates; it must not repeat requests.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 0.1,
        failure_mode: FailureMode = "open",
        denial_memory: float = 5.0,
        batch: bool = True,
        on_decision: Callable[[Observation], None] | None = None,
        http: httpx.Client | None = None,
    ) -> None:
        self._core = Core(url, key, timeout, failure_mode, denial_memory, batch, on_decision)
        self._given = http
        self._closed = False
        self._begin()
        begin = weakref.WeakMethod(self._begin)
        os.register_at_fork(after_in_child=lambda: (method := begin()) and method())

    def _begin(self) -> None:
        """Connections and locks are not shared with a parent process."""
        self._lock = Lock()
        self._core.memory.unlock()
        self._waiting: list[_Call] = []
        self._in_flight = 0
        self._failures = 0  # in a row
        self._http = self._given or httpx.Client(limits=_core.LIMITS, trust_env=False)

    def check(self, check: Check) -> Decision:
        """Asks whether a request may pass. It raises only a SluiceError of the kind request, if the check is not valid
        (too long an id, an unknown plan)."""
        return self._check(check, None)

    def reserve(self, check: Check, hold: float = 0) -> Decision:
        """check for a cost that is known only afterwards: check.cost is an estimate. If the decision is allowed, its
        reservation goes to settle. hold is how many seconds the server waits for that, by default ten minutes."""
        return self._check(check, hold)

    def check_batch(self, checks: list[Check]) -> list[Decision]:
        """Asks about up to 1000 requests, which are decided in order, in one request. If one check is not valid, it
        raises an error that names it, and nothing is taken. Denials are neither remembered nor recalled."""
        if not checks:
            return []
        began = time.monotonic()
        questions = [encode(check) for check in checks]
        try:
            decisions = self._many(questions, self._core.timeout)
            self._core.recovered()
        except SluiceError as error:
            decisions = [self._core.fall_back(error) for _ in checks]
        for check, decision in zip(checks, decisions):
            self._core.observe(check, began, decision)
        return decisions

    def settle(self, reservation: str | None, cost: float) -> Settlement:
        """Replaces the estimate of a reservation by what it really cost. Less gives the rest back; more takes the rest,
        even below zero, so that later checks wait. It settles once: sending it again after an error is safe. None,
        which is what a decision of the failure mode has, is not sent."""
        return self._settle(reservation, _core.settle_cost(cost))

    def cancel(self, reservation: str | None) -> Settlement:
        """Gives back all that a reservation took."""
        return self._settle(reservation, {"cost": 0})

    def release(self, reservation: str | None) -> Settlement:
        """Frees the places that a reservation holds, and leaves its estimate charged."""
        return self._settle(reservation, {})

    def extend(self, reservation: str | None) -> Settlement:
        """Keeps a reservation alive for as long again."""
        return self._settle(reservation, {"extend": True})

    def usage(self, user_id: str | int) -> Any:
        """All limits of one user as they stand, in the server's JSON, to show the user: GET /v1/usage."""
        return self._patient("GET", _core.usage_path(user_id), None)

    def close(self) -> None:
        """Closes the connections. Later checks are decided by the failure mode."""
        self._closed = True
        if self._given is None:
            self._http.close()

    def __enter__(self) -> Sluice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check(self, check: Check, hold: float | None) -> Decision:
        began = time.monotonic()
        try:
            decision = self._decide(check, hold)
        except BaseException as error:
            self._core.observe(check, began, None, error)
            raise
        self._core.observe(check, began, decision)
        return decision

    def _decide(self, check: Check, hold: float | None) -> Decision:
        question = encode(check, hold)
        recalled = self._core.memory.recall(question)
        if recalled is not None:
            return recalled
        try:
            decision = self._ask(question)
        except SluiceError as error:
            return self._core.fall_back(error)
        self._core.recovered()
        self._core.memory.learn(question, decision)
        return decision

    def _ask(self, question: Question) -> Decision:
        if self._closed:
            raise SluiceError("connection", "The client is closed.")
        with self._lock:
            if self._failures >= _core.FAILURES_UNTIL_PROBING and self._in_flight > 0:
                raise SluiceError("connection", "The last requests failed, and another one is trying.")
            alone = not self._core.batch or self._in_flight < _core.IN_FLIGHT
            call = _Call(question, self._core.timeout)
            if alone:
                self._in_flight += 1
            else:
                self._waiting.append(call)
        if alone:
            self._send([call])
        else:
            self._wait(call)
        return call.result()

    def _wait(self, call: _Call) -> None:
        if not call.event.wait(self._core.timeout * _core.STALL):
            with self._lock:
                if self._in_flight < _core.MOST_IN_FLIGHT and self._failures < _core.FAILURES_UNTIL_PROBING:
                    self._next_leader()
            call.event.wait(max(0.0, call.deadline - time.monotonic()))
        with self._lock:
            if call in self._waiting:  # so that nothing is taken for a caller that is gone
                self._waiting.remove(call)
            batch, call.leads = call.leads, None
        if batch is not None:
            self._send(batch)

    def _next_leader(self) -> None:
        """Lets one of the waiting callers send a batch for all. The lock is held. The newest leads: its deadline is the
        latest."""
        n = _core.batch_size([call.question.body for call in self._waiting])
        if n == 0:
            return
        batch, self._waiting = self._waiting[:n], self._waiting[n:]
        self._in_flight += 1
        batch[-1].leads = batch
        batch[-1].event.set()

    def _send(self, batch: list[_Call]) -> None:
        """Asks for several callers, the last of which is in this thread."""
        error: SluiceError | None = None
        answered = False
        try:
            error = self._tell(batch, batch[-1].deadline)
            answered = True
        finally:
            if not answered:  # an interrupt, which is the leader's own
                for call in batch[:-1]:
                    call.end(None, SluiceError("connection", "The thread that asked was interrupted."))
            with self._lock:
                self._in_flight -= 1
                if answered:
                    self._failures = 0 if _core.is_answer(error) else self._failures + 1
                if self._in_flight < _core.IN_FLIGHT:
                    self._next_leader()

    def _tell(self, batch: list[_Call], deadline: float) -> SluiceError | None:
        """Ends all calls of a batch, and returns why the request failed."""
        left = deadline - time.monotonic()
        try:
            if len(batch) == 1:
                batch[0].end(decode_check(self._post("POST", "/v1/check", batch[0].question.body, left)), None)
                return None
            for call, decision in zip(batch, self._many([call.question for call in batch], left)):
                call.end(decision, None)
            return None
        except SluiceError as error:
            if error.kind == "request" and len(batch) > 1:
                # Nothing was taken. Those that are not valid are told, and the others asked again without them.
                rest = []
                for i, call in enumerate(batch):
                    own = named(error, i)
                    if own is None:
                        rest.append(call)
                    else:
                        call.end(None, own)
                if not rest:
                    return None
                if len(rest) < len(batch):
                    return self._tell(rest, deadline)
            for call in batch:
                call.end(None, error)
            return error

    def _many(self, questions: list[Question], seconds: float) -> list[Decision]:
        return decode_batch(self._post("POST", "/v1/check/batch", encode_batch(questions), seconds), len(questions))

    def _settle(self, reservation: str | None, members: dict[str, Any]) -> Settlement:
        if not reservation:
            return Settlement(False)
        return decode_settlement(self._patient("POST", "/v1/settle", _core.settle_body(reservation, members)))

    def _patient(self, method: str, path: str, body: str | None) -> Any:
        answer = self._post(method, path, body, _core.PATIENT_TIMEOUTS * self._core.timeout)
        if answer.status != 200 or answer.body is None:
            raise problem(answer)
        return answer.body

    def _post(self, method: str, path: str, body: str | None, seconds: float) -> Answer:
        """Sends one request, once."""
        try:
            return self._core.answer(self._http.send(self._core.request(method, path, body, seconds)))
        except (httpx.HTTPError, httpx.StreamError, OSError, RuntimeError) as error:
            raise self._core.failure(error) from error
