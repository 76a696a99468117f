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
from ._core import Ask, Core, Deadline, FailureMode, Observation, Post, Step, Steps
from ._queue import IN_FLIGHT, STALL, Queue
from ._types import Check, Decision, Recorded, Settlement, SluiceError
from ._wire import Answer, Question

T = TypeVar("T")


def _run(steps: Steps[T], do: Callable[[Any], Any]) -> T:
    """Runs an operation with a function that does its steps."""
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
    """Bounds each read from a new connection by its request's deadline. httpcore, which calls this, gives every read
    of a header the time left at the first one, so a server could hold a call by sending it byte by byte."""
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
    """A check that waits for a batch."""

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
        """The reservation of a caller that has left."""
        return self._result.reservation if self.left and isinstance(self._result, Decision) else None


class Sluice:
    """A client of one server with one key, for a whole process and its threads. It survives a fork.

    url is the check endpoint's, key an API key with the permission check. timeout is the seconds that a check waits
    until failure_mode decides; calls without a failure mode, such as settle, wait ten times as long. denial_memory is
    the seconds that a denial is cached at most; 0 disables the cache. batch lets concurrent checks share requests.
    on_decision is called after each check, for metrics. http is an httpx.Client of your own, for example with
    certificates; it must not repeat requests, and must not be used on both sides of a fork.
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
        """Runs in a forked process as well, which must not share connections and locks with its parent."""
        self._lock = Lock()
        self._core.memory.unlock()
        self._queue: Queue[_Call] = Queue(self._core.memory, self._core.breaker, self._core.timeout, time.monotonic)
        self._requests: list[Thread] = []  # which close waits for
        self._idle = Condition(self._lock)
        self._http = self._given or httpx.Client(limits=_core.LIMITS, trust_env=False)

    def check(self, check: Check) -> Decision:
        """Asks whether a request may pass. Raises only a SluiceError of the kind request, for an invalid check such as
        of an unknown plan."""
        return self._run(self._core.check(check))

    def reserve(self, check: Check, hold: float = 0) -> Decision:
        """check with an estimated cost. An allowed decision's reservation goes to settle within hold seconds, by
        default ten minutes."""
        return self._run(self._core.check(check, hold))

    def check_batch(self, checks: list[Check]) -> list[Decision]:
        """Decides up to 1000 checks in order, in one request, without the cache of denials. If a check is invalid, the
        error names it, and nothing is taken."""
        return self._run(self._core.check_batch(checks))

    def settle(self, reservation: str | None, cost: float | Mapping[str, float]) -> Settlement:
        """Replaces a reservation's estimate by the real cost: the rest returns, or more is taken, even below zero.
        Settles once, so a retry is safe. None, as of the failure mode, is not sent. Costs by meter leave other meters'
        estimates."""
        return self._run(self._core.settle(reservation, cost))

    def record(self, check: Check, cost: float, id: str | None = None) -> Recorded:
        """Charges cost requests, and check.costs of other meters, whatever is left: no rule denies what has happened.
        check.cost is ignored, and the failure mode does not apply. The key needs the permissions check and report.
        An id of 16 to 255 visible ASCII characters is charged once within two minutes, so it is sent up to three times
        while the server does not answer or cannot decide. Without an id, record sends once, and may fail after the
        charge."""
        return self._run(self._core.record(check, cost, id))

    def cancel(self, reservation: str | None) -> Settlement:
        """Returns all that a reservation took."""
        return self._run(self._core.finish(reservation, {"cancel": True}))

    def release(self, reservation: str | None) -> Settlement:
        """Frees a reservation's concurrency slots, and leaves its estimate charged."""
        return self._run(self._core.finish(reservation, {}))

    def extend(self, reservation: str | None, cost: float | Mapping[str, float] | None = None) -> Settlement:
        """Prolongs a reservation by its hold. A cost above the estimate is decided like a check, and becomes the
        estimate; a lower one changes nothing."""
        return self._run(self._core.extend(reservation, cost))

    def report(self, backend: str, latencies: Iterable[float], errors: int = 0) -> bool:
        """Reports a backend's requests since the last report, about once a second, for rules that adapt to it:
        latencies in seconds, and the number of failures. False: no active rule adapts to the backend."""
        return self._run(self._core.report(backend, latencies, errors))

    def usage(self, user_id: str | int, *, plan: str | None = None) -> Any:
        """A user's limits and levels, in the JSON of GET /v1/usage. plan is by default the user's own, else the
        tenant's default."""
        return self._run(self._core.usage(user_id, plan))

    def close(self) -> None:
        """Waits for requests in flight, and closes the connections. The failure mode decides waiting and later checks.
        In a signal handler it does not wait for what the handler interrupts."""
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
        if isinstance(step, Ask):
            return self._ask(step.question)
        if isinstance(step, Post):
            return self._post(step)
        time.sleep(step.seconds)
        return None

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
        """Waits for an overdue call while the same check is in flight or this process is too busy."""
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
        """Lets the waiting caller with the latest deadline send a batch for all. The lock is held."""
        batch = self._queue.take()
        if batch:
            leader = max(batch, key=lambda call: call.deadline)
            leader.leads = batch
            leader.event.set()

    def _send(self, batch: list[_Call], leader: _Call) -> None:
        """Sends a batch in the thread of its leader."""
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
        """Releases without a wait, where threads run. close and the end of the process wait for it."""
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
        """Otherwise a slot would stay taken until its max_hold."""
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
