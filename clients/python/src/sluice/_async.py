from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _core
from ._breaker import LONGEST
from ._core import Ask, Core, FailureMode, Observation, Pause, Post, Step, Steps
from ._queue import IN_FLIGHT, STALL, Queue
from ._sync import Sluice
from ._types import Check, Decision, Recorded, Settlement, SluiceError
from ._wire import Answer, Question

T = TypeVar("T")


async def _run(steps: Steps[T], do: Callable[[Any], Awaitable[Any]]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                done = await do(step)
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(done)
    except StopIteration as end:
        result: T = end.value
        return result


class _Call:

    def __init__(self, question: Question, unwanted: Callable[[Decision], None]) -> None:
        self.question = question
        self.since = time.monotonic()
        self.stalled = self.kept = self.sent = False
        self.answer: Decision | None = None
        self._unwanted = unwanted
        self.future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

    def ended(self) -> bool:
        return self.future.done()

    def end(self, result: Decision | SluiceError) -> None:
        if self.future.done():  # it was ended before, or its caller left
            if isinstance(result, Decision):
                self._unwanted(result)
            return
        if isinstance(result, SluiceError):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    async def result(self) -> Decision:
        try:
            return await self.future
        except asyncio.CancelledError:
            if self.future.done() and not self.future.cancelled() and self.future.exception() is None:
                self._unwanted(self.future.result())  # it came in the same moment
            raise


class AsyncSluice:
    """Sluice for asyncio: the same options and methods, with http an httpx.AsyncClient.

    Requests are tasks of their own, so a cancelled caller disturbs no other. Event loops may share it: each has a queue
    and connections of its own, which a close in that loop closes. An http of your own is for one event loop.
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
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._core = Core(url, key, timeout, failure_mode, denial_memory, batch, on_decision)
        self._given = http
        self._closed = False
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}

    async def check(self, check: Check) -> Decision:
        return await self._run(self._core.check(check))

    async def reserve(self, check: Check, hold: float = 0) -> Decision:
        return await self._run(self._core.check(check, hold))

    async def check_batch(self, checks: list[Check]) -> list[Decision]:
        return await self._run(self._core.check_batch(checks))

    async def settle(self, reservation: str | None, cost: float | Mapping[str, float]) -> Settlement:
        return await self._run(self._core.settle(reservation, cost))

    async def record(self, check: Check, cost: float, id: str | None = None) -> Recorded:
        return await self._run(self._core.record(check, cost, id))

    async def cancel(self, reservation: str | None) -> Settlement:
        return await self._run(self._core.finish(reservation, {"cancel": True}))

    async def release(self, reservation: str | None) -> Settlement:
        return await self._run(self._core.finish(reservation, {}))

    async def extend(self, reservation: str | None, cost: float | Mapping[str, float] | None = None) -> Settlement:
        return await self._run(self._core.extend(reservation, cost))

    async def report(self, backend: str, latencies: Iterable[float], errors: int = 0) -> bool:
        return await self._run(self._core.report(backend, latencies, errors))

    async def usage(self, user_id: str | int, *, plan: str | None = None) -> Any:
        return await self._run(self._core.usage(user_id, plan))

    async def close(self) -> None:
        """Waits for requests in flight, at most eleven time-outs, and closes the connections. The failure mode decides
        later checks."""
        self._closed = True
        here = self._loops.get(asyncio.get_running_loop())
        if here is not None:
            await here.close()

    async def __aenter__(self) -> AsyncSluice:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        return await _run(steps, self._do)

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Ask):
            if self._closed:
                raise SluiceError("connection", "The client is closed.")
            return await self._here().ask(step.question)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        # A cancelled caller must not end a request, which would disturb its connection.
        here = self._here()
        return await asyncio.shield(here.spawn(here.post(step)))

    def _here(self) -> _Loop:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            for other in list(self._loops):  # no lock: only the thread of a loop adds it
                if other.is_closed():
                    self._loops.pop(other, None)
            here = self._loops[loop] = _Loop(self, self._core, self._given)
        return here

    def _release_later(self, reservation: str | None) -> None:
        """Releases without a wait; close waits for it."""
        if reservation:
            self._here().release(reservation)


for _name in ("check", "reserve", "check_batch", "settle", "record", "cancel", "release", "extend", "report", "usage"):
    getattr(AsyncSluice, _name).__doc__ = getattr(Sluice, _name).__doc__
del _name


class _Loop:
    """The queue, requests and connections of a client in one event loop."""

    def __init__(self, client: AsyncSluice, core: Core, given: httpx.AsyncClient | None) -> None:
        self._client, self._core, self._given = client, core, given
        self.queue: Queue[_Call] = Queue(core.memory, core.breaker, core.timeout, time.monotonic)
        self._http = given or httpx.AsyncClient(limits=_core.LIMITS, trust_env=False)
        self._watch: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        for call in self.queue:
            call.end(SluiceError("connection", "The client is closed."))
        end = time.monotonic() + (LONGEST + 1) * self._core.timeout
        while self._tasks and (left := end - time.monotonic()) > 0:  # the end of a request may begin a release
            await asyncio.wait(self._tasks, timeout=left)
        if self._watch is not None:
            self._watch.cancel()
        if self._given is None:
            await self._http.aclose()

    async def ask(self, question: Question) -> Decision:
        self._core.breaker.admit()
        call = _Call(question, self._unwanted)
        if not self._core.batch or self.queue.in_flight < IN_FLIGHT:
            self.spawn(self._send(self.queue.start(call)))
            return await call.result()  # the request has a deadline
        refused = self.queue.add(call)
        if refused is not None:
            return refused
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._look())
        try:
            return await call.result()
        finally:
            self.queue.remove(call)

    async def _look(self) -> None:
        """Ends overdue calls, and sends another request for stalled ones."""
        queue, timeout, now = self.queue, self._core.timeout, time.monotonic
        try:
            while queue.waiting or queue.flights:
                wake = max(now(), min(queue.due(), now() + timeout * STALL))
                await self._pause(wake)
                at = now()
                if queue.due(with_kept=True) > at:
                    continue
                for pause in _core.pauses(wake, timeout, now):
                    await self._pause(now() + pause)
                queue.end_overdue(at)
        finally:
            self._watch = None

    async def _pause(self, end: float) -> None:
        """Sleeps, and meanwhile sends another request for stalled calls."""
        while True:
            left = end - time.monotonic()
            await asyncio.sleep(max(0, min(left, self._core.timeout * STALL)))
            if self.queue.has_stalled() and self.queue.may_add_request():
                self._send_next()
            if time.monotonic() >= end:
                return

    def _send_next(self) -> None:
        batch = [] if self._client._closed else self.queue.take()
        if batch:
            self.spawn(self._send(batch))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _send(self, batch: list[_Call]) -> None:
        error: SluiceError | None = SluiceError("connection", "The event loop ended.")
        try:
            error = await _run(self._core.tell(batch, time.monotonic() + self._core.timeout), self.post)
        finally:
            for call in batch:
                if not call.ended():
                    call.end(error or SluiceError("connection", "The request ended without an answer."))
            self.queue.landed(batch, _core.is_answer(error))
            if self.queue.in_flight < IN_FLIGHT:
                self._send_next()

    def _unwanted(self, decision: Decision) -> None:
        """Otherwise a slot would stay taken until its max_hold."""
        if decision.reservation:
            self.release(decision.reservation)

    def release(self, reservation: str) -> None:
        async def quietly() -> None:
            try:
                await self._client.release(reservation)
            except SluiceError:
                pass  # it is freed after its max_hold

        self.spawn(quietly())

    async def post(self, post: Post) -> Answer:
        due = time.monotonic() + post.seconds
        answer: asyncio.Future[httpx.Response] | None = None
        try:
            request, _ = self._core.request(post)
            answer = asyncio.ensure_future(self._http.send(request))
            await asyncio.wait({answer}, timeout=post.seconds)
            for pause in _core.pauses(due, post.seconds, time.monotonic):
                if answer.done():
                    break
                await asyncio.wait({answer}, timeout=pause)
            if not answer.done():
                raise SluiceError("timeout", "No answer in time.")
            response = answer.result()
            return self._core.answer(response, response.content)
        except _core.NO_ANSWER as error:
            raise self._core.failure(error) from error
        finally:
            if answer is not None:
                answer.cancel()
