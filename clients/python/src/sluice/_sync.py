from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from threading import Condition, Event, Lock, Thread, current_thread, local
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _core
from ._breaker import LONGEST
from ._core import RECORD_PAUSES, Ask, Core, Deadline, FailureMode, Observation, Post, Step, Steps, may_repeat
from ._queue import IN_FLIGHT, STALL, Queue
from ._types import Check, Decision, Recorded, Settlement, SluiceError
from ._wire import Answer, Question

T = TypeVar("T")


def _run(steps: Steps[T], do: Callable[[Any], Any]) -> T:
    """Runs an operation by a function that waits for each of its steps."""
    try:
        step = next(steps)
        while True:
            try:
                done = do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


#: The deadline of the request that a thread sends.
_sending = local()


def _bound_reads(event: str, info: dict[str, Any]) -> None:
    """Makes each read from a new connection wait only for what is left of its request's time. httpcore, which calls
    this, gives every read of a header what was left at the first one, so a server that sends it byte by byte would hold
    a call."""
    if not event.endswith(("connect_tcp.complete", "connect_unix_socket.complete", "start_tls.complete")):
        return
    stream = info["return_value"]
    read: Callable[[int, float | None], bytes] = stream.read

    def bounded(max_bytes: int, timeout: float | None = None) -> bytes:
        deadline: Deadline | None = getattr(_sending, "deadline", None)
        if deadline is None:  # a request of somebody else on a given client
            return read(max_bytes, timeout)
        deadline.check()
        return read(max_bytes, deadline.left())

    stream.read = bounded


def _runs_threads() -> bool:
    """uWSGI runs no threads of its applications without one of these options."""
    uwsgi = sys.modules.get("uwsgi")
    return uwsgi is None or "enable-threads" in uwsgi.opt or "threads" in uwsgi.opt


class _Call:
    """A check that waits for its share of a request."""

    def __init__(self, question: Question, timeout: float) -> None:
        self.question = question
        self.since = time.monotonic()
        self.deadline = self.since + timeout
        self.stalled = self.kept = self.sent = False
        self.answer: Decision | None = None
        self.event = Event()
        self.thread = current_thread()
        self.leads: list[_Call] | None = None  # the batch that this caller is to send
        self.left = False  # its caller does not read the result
        self._result: Decision | SluiceError | None = None

    def end(self, result: Decision | SluiceError) -> None:
        self._result = result
        self.event.set()

    def ended(self) -> bool:
        return self._result is not None

    def result(self) -> Decision:
        result = None if self.left else self._result
        if isinstance(result, Decision):
            return result
        raise result or SluiceError("timeout", "No answer in time.")

    def unwanted(self) -> str | None:
        """The reservation that nobody knows of, because its caller left."""
        return self._result.reservation if self.left and isinstance(self._result, Decision) else None


class Sluice:
    """Asks one server with one key. Make one per process; threads may share it. It survives a fork.

    url is the check endpoint's, key an API key with the permission check. timeout is how many seconds a check waits at
    most, until failure_mode decides; settling and usage, for which there is no failure mode, wait ten times as long.
    denial_memory is how many seconds a denial is remembered at most; 0 is not at all. batch says whether concurrent
    checks share requests. on_decision is called after each check, for metrics. http is an httpx.Client of your own, for
    example with certificates; it must not repeat requests, and must not be used on both sides of a fork.
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
        if hasattr(os, "register_at_fork"):  # not on Windows
            os.register_at_fork(after_in_child=lambda: (method := begin()) and method())

    def _begin(self) -> None:
        """Connections and locks are not shared with a parent process."""
        self._lock = Lock()
        self._core.memory.unlock()
        self._queue: Queue[_Call] = Queue(self._core.memory, self._core.breaker, self._core.timeout, time.monotonic)
        self._requests: list[Thread] = []  # which close waits for
        self._idle = Condition(self._lock)
        self._http = self._given or httpx.Client(limits=_core.LIMITS, trust_env=False)

    def check(self, check: Check) -> Decision:
        """Asks whether a request may pass. It raises only a SluiceError of the kind request, if the check is not valid
        (too long an id, an unknown plan)."""
        return self._run(self._core.check(check))

    def reserve(self, check: Check, hold: float = 0) -> Decision:
        """check for a cost that is known only afterwards: check.cost is an estimate. If the decision is allowed, its
        reservation goes to settle. hold is how many seconds the server waits for that, by default ten minutes."""
        return self._run(self._core.check(check, hold))

    def check_batch(self, checks: list[Check]) -> list[Decision]:
        """Asks about up to 1000 requests, which are decided in order, in one request. If one check is not valid, it
        raises an error that names it, and nothing is taken. Denials are neither remembered nor recalled."""
        return self._run(self._core.check_batch(checks))

    def settle(self, reservation: str | None, cost: float | Mapping[str, float]) -> Settlement:
        """Replaces the estimate of a reservation by what it really cost. Less gives the rest back; more takes the rest,
        even below zero, so that later checks wait. It settles once: sending it again after an error is safe. None,
        which is what a decision of the failure mode has, is not sent."""
        return self._run(self._core.settle(reservation, cost))

    def record(self, check: Check, cost: float, id: str | None = None) -> Recorded:
        """Charges what has happened, whatever is left: no rule denies a record. cost is that of requests,
        check.costs those of other meters; check.cost is ignored. The key needs the
        permissions check and report. The server charges an id, of 16 to 255 visible ASCII characters, once within two
        minutes, and a record with one is sent up to three times if there is no answer or the server cannot decide.
        Without an id it is sent once, and may be charged although it fails. The failure mode does not apply."""
        for pause in RECORD_PAUSES if id else ():
            try:
                return self._run(self._core.record(check, cost, id))
            except SluiceError as error:
                if not may_repeat(error):
                    raise
                time.sleep(pause)
        return self._run(self._core.record(check, cost, id))

    def cancel(self, reservation: str | None) -> Settlement:
        """Gives back all that a reservation took."""
        return self._run(self._core.finish(reservation, {"cancel": True}))

    def release(self, reservation: str | None) -> Settlement:
        """Frees the slots that a reservation holds, and leaves its estimate charged."""
        return self._run(self._core.finish(reservation, {}))

    def extend(self, reservation: str | None, cost: float | Mapping[str, float] | None = None) -> Settlement:
        """Keeps a reservation alive for as long again. A cost above its estimate is decided like a check, and becomes
        the estimate; a lower one changes nothing."""
        return self._run(self._core.extend(reservation, cost))

    def report(self, backend: str, latencies: Iterable[float], errors: int = 0) -> bool:
        """Reports how the requests to a backend went since the last report, about once a second, for rules that adapt
        to it: their latencies in seconds, and how many of them failed. False: no active rule adapts to the backend."""
        return self._run(self._core.report(backend, latencies, errors))

    def usage(self, user_id: str | int, *, plan: str | None = None) -> Any:
        """All limits of one user as they stand, in the server's JSON, to show the user: GET /v1/usage.

        plan is whose limits to show; by default the user's own, else the tenant's default.
        """
        return self._run(self._core.usage(user_id, plan))

    def close(self) -> None:
        """Waits for what is in flight, such as a report, and closes the connections. Checks that wait for a request,
        and later ones, are decided by the failure mode. In a signal handler it does not wait for what the handler
        interrupts."""
        self._closed = True
        me = current_thread()
        if not self._lock.acquire(timeout=self._core.timeout):  # a signal handler has interrupted its holder
            return
        try:
            for call in self._queue:
                if call.thread is not me:  # whose event may be locked
                    self._queue.remove(call)
                    call.end(SluiceError("connection", "The client is closed."))
            self._idle.wait_for(
                lambda: all(thread is me for thread in self._requests), (LONGEST + 1) * self._core.timeout
            )
        finally:
            self._lock.release()
        if me not in self._requests:  # otherwise its end closes the connections
            self._close_connections()

    def _close_connections(self) -> None:
        if self._given is None:
            self._http.close()

    def __enter__(self) -> Sluice:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        return _run(steps, self._do)

    def _do(self, step: Step) -> Any:
        return self._ask(step.question) if isinstance(step, Ask) else self._post(step)

    def _ask(self, question: Question) -> Decision:
        with self._lock:
            if self._closed:
                raise SluiceError("connection", "The client is closed.")
            self._core.breaker.admit()
            call = _Call(question, self._core.timeout)
            alone = None
            if not self._core.batch or self._queue.in_flight < IN_FLIGHT:
                alone = self._queue.start(call)
            else:
                refused = self._queue.add(call)
                if refused is not None:
                    return refused
        if alone:
            self._send(alone, call)
        else:
            self._wait(call)
        return call.result()

    def _wait(self, call: _Call) -> None:
        interrupted = True
        try:
            self._await(call)
            interrupted = False
        finally:
            with self._lock:
                self._queue.remove(call)
                call.left = interrupted or not call.ended()
                unwanted = call.unwanted()
                batch, call.leads = call.leads, None
                if batch is not None:  # an interrupt
                    for other in batch:
                        if other is not call:
                            other.end(SluiceError("connection", "The thread that was to ask was interrupted."))
                    self._queue.landed(batch, None)
                    self._next_leader()
            self._release_later(unwanted)

    def _await(self, call: _Call) -> None:
        if not call.event.wait(self._core.timeout * STALL):
            with self._lock:
                if self._queue.may_add_request():
                    self._next_leader()
            if not call.event.wait(max(0.0, call.deadline - time.monotonic())):
                self._await_overdue(call)
        with self._lock:
            batch, call.leads = call.leads, None
        if batch is not None:
            self._send(batch, call)

    def _await_overdue(self, call: _Call) -> None:
        """Waits for a call whose time is over, while the same check is in flight or this process is too busy."""
        for pause in _core.pauses(call.deadline, self._core.timeout, time.monotonic):
            if call.event.wait(pause):
                return
        while True:
            with self._lock:
                if call.event.is_set():
                    return
                result = self._queue.overdue(call)
                if result is not None:
                    self._queue.remove(call)
                    if isinstance(result, Decision):
                        call.end(result)
                    return
            if call.event.wait(self._core.timeout * STALL):
                return

    def _next_leader(self) -> None:
        """Lets one of the waiting callers send a batch for all. The lock is held. The newest leads: its deadline is the
        latest."""
        batch = self._queue.take()
        if batch:
            leader = max(batch, key=lambda call: call.deadline)
            leader.leads = batch
            leader.event.set()

    def _send(self, batch: list[_Call], leader: _Call) -> None:
        """Asks for several callers, of which the leader is in this thread."""
        error: SluiceError | None = None
        answered = False
        deadline = leader.deadline
        if self._queue.is_healthy():  # then an overdue call may lead
            deadline = max(deadline, time.monotonic() + self._core.timeout)
        try:
            error = _run(self._core.tell(batch, deadline), self._post)
            answered = True
        finally:
            if not answered:  # an interrupt, which is the leader's own
                for call in batch:
                    if call is not leader:
                        call.end(SluiceError("connection", "The thread that asked was interrupted."))
            with self._lock:
                self._queue.landed(batch, _core.is_answer(error) if answered else None)
                if self._queue.in_flight < IN_FLIGHT:
                    self._next_leader()
                unwanted = [call.unwanted() for call in batch]
            for reservation in unwanted:
                self._release_later(reservation)

    def _release_later(self, reservation: str | None) -> None:
        """Releases without a wait, where threads run; close and the end of the process wait for it."""
        if not reservation:
            return
        if not _runs_threads():
            with self._lock:
                self._requests.append(current_thread())
            self._release_quietly(reservation)
            return
        thread = Thread(target=self._release_quietly, args=(reservation,))
        with self._lock:
            self._requests.append(thread)
        try:
            thread.start()
        except RuntimeError:  # there is no thread to be had: the place is freed after its max_hold
            with self._lock:
                self._requests.remove(thread)

    def _release_quietly(self, reservation: str) -> None:
        """A slot would stay taken until its max_hold, for a caller that does not know of it."""
        try:
            self.release(reservation)
        except SluiceError:
            pass
        finally:
            self._request_ended()

    def _request_ended(self) -> None:
        with self._idle:
            self._requests.remove(current_thread())
            self._idle.notify_all()
            is_last = self._closed and not self._requests
        if is_last:
            self._close_connections()

    def _post(self, post: Post) -> Answer:
        """Sends one request, once."""
        with self._lock:
            self._requests.append(current_thread())
        try:
            return self._post_now(post)
        finally:
            self._request_ended()

    def _post_now(self, post: Post) -> Answer:
        try:
            request, deadline = self._core.request(post)
            request.extensions = {**request.extensions, "timeout": deadline, "trace": _bound_reads}
            _sending.deadline = deadline
            with closing(self._http.send(request, stream=True)) as response:
                content = b""
                for part in response.iter_bytes():
                    content += part
                    deadline.check()
            return self._core.answer(response, content)
        except _core.NO_ANSWER as error:
            raise self._core.failure(error) from error
        finally:
            _sending.deadline = None
