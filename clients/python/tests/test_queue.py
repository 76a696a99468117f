from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from sluice import AsyncSluice, Check, Decision, Limiter, Observation, Sluice, SluiceError, __version__
from sluice._breaker import Breaker
from sluice._memory import Memory
from sluice._queue import Queue
from sluice._wire import Question

from .servers import PATIENCE, TEST_KEY, Received, Server, gone_url

logging.getLogger("sluice").addHandler(logging.NullHandler())
logging.getLogger("sluice").propagate = False


class Held:
    """A request that has arrived."""

    def __init__(self, received: Received) -> None:
        self.path, self.body = received.path, received.body
        body = json.loads(received.body)
        self.batch = "checks" in body
        self.users = [check.get("user_id") for check in (body["checks"] if self.batch else [body])]
        self.answer: Future[dict[str, Any]] = Future()

    def let(self, status: int = 200) -> None:
        """Allows all checks, naming each by its plan; on 400 refuses those of the user bad."""
        results = [
            {"status": 200, "allowed": True, "plan": user, "reservation": "a place" if user == "holder" else None}
            for user in self.users
        ]
        errors = [
            {"pointer": f"/checks/{i}/user_id", "detail": "is bad"} for i, u in enumerate(self.users) if u == "bad"
        ]
        body = {"results": results} if self.batch else results[0]
        body = body if status == 200 else {"type": "urn:x", "errors": errors}
        self.answer.set_result({"status": status, "body": body})


    def limit(self, user: str, n: int) -> None:
        """Allows n checks of a user and all of others, and denies the rest for a minute."""
        results: list[dict[str, Any]] = []
        for one in self.users:
            n -= one == user
            denied = {"status": 429, "allowed": False, "reason": "limit_exceeded", "retry_after_ms": 60_000}
            results.append(denied if one == user and n < 0 else {"status": 200, "allowed": True})
        self.answer.set_result({"body": {"results": results} if self.batch else results[0]})


class Interrupt(BaseException):
    """What a signal handler or a gevent.Timeout raises."""


class Interruptible(threading.Event):
    """An event whose waits can be interrupted."""

    interrupt_when_set = False
    _interrupted = False

    def interrupt(self) -> None:
        self._interrupted = True

    def wait(self, timeout: float | None = None) -> bool:
        while not super().wait(0.001):
            if self._interrupted:
                raise Interrupt
        if self.interrupt_when_set:
            raise Interrupt
        return True


class FakeCall:
    """A check for a queue alone."""

    def __init__(self, since: float) -> None:
        self.question, self.since = Question("{}", "{}", 1), since
        self.stalled = self.kept = self.sent = False
        self.answer: Decision | None = None
        self.result: Decision | SluiceError | None = None

    def end(self, result: Decision | SluiceError) -> None:
        self.result = result

    def ended(self) -> bool:
        return self.result is not None


class Threads:
    """Checks in threads, by Sluice."""

    def __init__(self, test: unittest.TestCase, url: str, **options: Any) -> None:
        self.client = Sluice(url, TEST_KEY, **options)
        self._pool = ThreadPoolExecutor(32)
        test.addCleanup(self.client.close)
        test.addCleanup(self._pool.shutdown, cancel_futures=True)

    def queue(self) -> Queue[Any]:
        return self.client._queue

    def check(self, **check: Any) -> Future[Decision]:
        return self._pool.submit(self.client.check, Check(**check))

    def check_batch(self) -> Future[Decision]:
        return self._pool.submit(lambda: self.client.check_batch([Check()])[0])

    def flood(self, n: int, **check: Any) -> list[Future[Decision]]:
        return [self.check(**check) for _ in range(n)]


class Tasks:
    """Checks in tasks of one event loop, by AsyncSluice."""

    def __init__(self, test: unittest.TestCase, url: str, **options: Any) -> None:
        self.client = AsyncSluice(url, TEST_KEY, **options)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()

        def stop() -> None:
            asyncio.run_coroutine_threadsafe(self.client.close(), self._loop).result(PATIENCE)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE)
            self._loop.close()

        test.addCleanup(stop)

    def queue(self) -> Queue[Any]:
        return self.client._loops[self._loop].queue

    def check(self, **check: Any) -> Future[Decision]:
        return asyncio.run_coroutine_threadsafe(self.client.check(Check(**check)), self._loop)

    def check_batch(self) -> Future[Decision]:
        async def first() -> Decision:
            return (await self.client.check_batch([Check()]))[0]

        return asyncio.run_coroutine_threadsafe(first(), self._loop)

    def flood(self, n: int, **check: Any) -> list[Future[Decision]]:
        results: list[Future[Decision]] = [Future() for _ in range(n)]

        async def one(result: Future[Decision]) -> None:
            result.set_result(await self.client.check(Check(**check)))

        async def all_of_them() -> None:
            await asyncio.gather(*map(one, results))

        asyncio.run_coroutine_threadsafe(all_of_them(), self._loop)
        return results


class QueueCases:
    """What both clients do."""

    kind: type[Threads] | type[Tasks]

    def setUp(self) -> None:
        assert isinstance(self, unittest.TestCase)
        self.arrived: queue.Queue[Held] = queue.Queue()

        def answer(received: Received) -> dict[str, Any]:
            held = Held(received)
            self.arrived.put(held)
            return held.answer.result(PATIENCE)

        self.server = Server(self, answer)

    def start(self, **options: Any) -> Threads | Tasks:
        assert isinstance(self, unittest.TestCase)
        return self.kind(self, self.server.url, **{"timeout": PATIENCE, **options})

    def next(self) -> Held:
        return self.arrived.get(timeout=PATIENCE)

    def await_waiting(self, checks: Threads | Tasks, n: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while len(checks.queue()) != n:
            assert time.monotonic() < deadline, f"{len(checks.queue())} checks wait, want {n}"
            time.sleep(0.001)

    def test_checks_that_wait_go_together(self) -> None:
        assert isinstance(self, unittest.TestCase)
        checks = self.start()
        results = [checks.check(user_id=str(i)) for i in range(20)]
        alone = [self.next(), self.next()]
        self.await_waiting(checks, 18)
        alone[0].let()
        batch = self.next()
        self.assertEqual((batch.path, len(batch.users)), ("/v1/check/batch", 18))
        alone[1].let()
        batch.let()
        self.assertEqual([result.result(PATIENCE).plan for result in results], [str(i) for i in range(20)])
        self.assertEqual(len(self.server.requests), 3)

    def test_a_bad_check_fails_alone_in_its_batch(self) -> None:
        assert isinstance(self, unittest.TestCase)
        checks = self.start()
        results = {user: checks.check(user_id=user) for user in ("a", "b")}
        alone = [self.next(), self.next()]
        for n, user in enumerate(("good", "bad", "other"), 1):
            results[user] = checks.check(user_id=user)
            self.await_waiting(checks, n)
        alone[0].let()
        self.next().let(400)
        again = self.next()
        self.assertEqual(again.users, ["good", "other"])
        again.let()
        alone[1].let()
        with self.assertRaises(SluiceError) as raised:
            results.pop("bad").result(PATIENCE)
        self.assertEqual((raised.exception.kind, raised.exception.fields), ("request", (("/user_id", "is bad"),)))
        self.assertEqual({result.result(PATIENCE).source for result in results.values()}, {"server"})

    def test_requests_that_hang_hold_up_only_their_own_checks(self) -> None:
        assert isinstance(self, unittest.TestCase)
        checks = self.start(timeout=1)
        hanging = [checks.check(user_id="a"), checks.check(user_id="b")]
        held = [self.next(), self.next()]
        later = checks.check(user_id="later")
        self.next().let()  # though none of the others has ended
        self.assertEqual(later.result(PATIENCE).source, "server")
        for result in hanging:
            decision = result.result(PATIENCE)
            self.assertEqual((decision.source, decision.allowed), ("failure_mode", True))
        for request in held:
            request.let()

    def test_a_flood_of_one_user_is_denied_by_the_first_denials_and_delays_no_other(self) -> None:
        assert isinstance(self, unittest.TestCase)
        with mock.patch("sluice._queue.MAX_BATCH", 8):
            self.flood(30)

    def flood(self, size: int) -> None:
        assert isinstance(self, unittest.TestCase)
        burst = 5
        checks = self.start(timeout=10 * PATIENCE)  # so that no more requests are added
        results = checks.flood(size - 1, user_id="flood")
        alone = [self.next(), self.next()]
        self.await_waiting(checks, size - 3)
        results.append(checks.check(user_id="other"))
        self.await_waiting(checks, size - 2)
        alone[0].let()
        batch = self.next()
        self.assertIn("other", batch.users)
        self.assertLess(len(batch.users), size - 2)
        batch.limit("flood", burst - 2)
        self.await_waiting(checks, 0)
        alone[1].let()
        decisions = [result.result(PATIENCE) for result in results]
        self.assertEqual(sum(decision.allowed for decision in decisions), burst + 1)
        self.assertLessEqual({decision.source for decision in decisions}, {"server", "memory"})
        self.assertEqual(len(self.server.requests), 3)

    def test_an_overdue_check_waits_for_the_answer_to_the_same_check_if_the_server_answers(self) -> None:
        assert isinstance(self, unittest.TestCase)
        denied = Decision(False, 429, "too_many_in_flight", retry_after=3600)
        cases: list[tuple[str, float, bool, float, Decision | None, str | None]] = [
            ("the same is in flight", 2, True, 0, None, None),
            ("the same is in flight, for too long", 11, True, 0, None, "timeout"),
            ("the server is silent", 2, True, 1.5, None, "timeout"),
            ("nothing of the same is in flight", 2, False, 0, None, "timeout"),
            ("the same was denied, without a promise", 2, True, 0, denied, "memory"),
            ("the same was allowed", 2, True, 0, Decision(True, 200), None),
        ]
        for name, age, in_flight, silence, answer, want in cases:
            with self.subTest(name):
                now = 1000.0
                waiting: Queue[Any] = Queue(Memory(5), Breaker(1), 1, lambda: now)
                call = FakeCall(now)
                sent = waiting.start(FakeCall(now)) if in_flight else []
                waiting.add(call)
                now += age
                if answer is not None:
                    waiting.start(FakeCall(now))
                    sent[0].answer = answer
                    waiting.landed(sent, None)
                waiting.answered = now - silence
                waiting.end_overdue(now)
                kind = call.result.source if isinstance(call.result, Decision) else call.result and call.result.kind
                self.assertEqual(kind, want)

    def test_a_kept_call_wakes_nobody(self) -> None:
        assert isinstance(self, unittest.TestCase)
        now = 1000.0
        waiting: Queue[Any] = Queue(Memory(5), Breaker(1), 1, lambda: now)
        waiting.start(FakeCall(now))
        waiting.add(FakeCall(now))
        now += 2
        later = FakeCall(now)
        waiting.add(later)
        waiting.answered = now
        waiting.end_overdue(now)
        self.assertEqual(len(waiting), 2)
        waiting.flights.clear()
        self.assertEqual(waiting.due(), later.since + 1)
        self.assertEqual(waiting.due(with_kept=True), 1001)

    def test_a_call_is_removed_without_a_search(self) -> None:
        assert isinstance(self, unittest.TestCase)
        compared: list[FakeCall] = []

        class Compared(FakeCall):
            __hash__ = FakeCall.__hash__

            def __eq__(self, other: object) -> bool:
                compared.append(self)
                return self is other

        waiting: Queue[Any] = Queue(Memory(5), Breaker(1), 1, lambda: 0)
        calls = [Compared(0) for _ in range(300)]
        for call in calls:
            self.assertIsNone(waiting.add(call))
        sent = waiting.take()
        for call in (*sent, calls[290]):
            waiting.remove(call)
        self.assertEqual(len(waiting), 43)
        self.assertEqual(compared, [])

    def test_too_many_of_the_same_check_are_denied_while_the_server_answers(self) -> None:
        assert isinstance(self, unittest.TestCase)
        with mock.patch("sluice._queue.MAX_WAITING", 2):
            checks = self.start()
            results = [checks.check(user_id="flood") for _ in range(4)]
            alone = [self.next(), self.next()]
            self.await_waiting(checks, 2)
            self.assertEqual(checks.check(user_id="flood").result(PATIENCE).source, "failure_mode")
            checks.queue().answered = time.monotonic()
            denied = checks.check(user_id="flood").result(PATIENCE)
            self.assertEqual((denied.allowed, denied.status), (False, 429))
            for request in (*alone,):
                request.let()
            self.next().let()
            for result in results:
                result.result(PATIENCE)

    def test_one_check_after_another_asks_a_server_that_fails_only_after_pauses(self) -> None:
        assert isinstance(self, unittest.TestCase)
        for kind in ("check", "batch"):
            checks = self.start(failure_mode="closed")
            check: Callable[[], Future[Decision]] = checks.check_batch if kind == "batch" else lambda: checks.check()
            core, now = checks.client._core, 0.0
            breaker = core.batches if kind == "batch" else core.breaker
            breaker._timeout, breaker.now = 0.1, lambda: now

            def ask(status: int) -> None:
                assert isinstance(self, unittest.TestCase)
                result = check()
                self.next().let(status)
                self.assertEqual(result.result(PATIENCE).source, "server" if status == 200 else "failure_mode")

            def at_once() -> None:
                assert isinstance(self, unittest.TestCase)
                for result in [check() for _ in range(100)]:
                    self.assertEqual(result.result(PATIENCE).status, 503)
                self.assertTrue(self.arrived.empty())

            with self.subTest(kind):
                for _ in range(5):
                    ask(500)
                for pause in (0.1, 0.2, 0.4, 0.8, 1, 1):
                    self.assertAlmostEqual(breaker._pause, pause)
                    self.assertTrue(pause / 2 <= breaker._next - now <= pause)
                    at_once()
                    now += pause
                    probe = check()
                    probing = self.next()
                    at_once()
                    probing.let(500)
                    probe.result(PATIENCE)
                now += 5
                for _ in range(3):
                    ask(200)

    def test_batches_that_time_out_leave_single_checks_to_the_server(self) -> None:
        assert isinstance(self, unittest.TestCase)
        checks = self.start(timeout=0.02)
        checks.client._core.batches.now = lambda: 0
        for i in range(6):
            error = str(checks.check_batch().result(PATIENCE).error)
            self.assertEqual("too early" in error, i == 5, error)
        for _ in range(4):
            self.assertNotIn("too early", str(checks.check().result(PATIENCE).error))
        while not self.arrived.empty():
            self.next().let()

    def test_without_batching_each_check_is_a_request(self) -> None:
        assert isinstance(self, unittest.TestCase)
        checks = self.start(batch=False)
        results = [checks.check() for _ in range(5)]
        held = [self.next() for _ in range(5)]
        self.assertEqual({request.path for request in held}, {"/v1/check"})
        for request in held:
            request.let()
        for result in results:
            result.result(PATIENCE)

    def test_observers_see_every_decision_and_logs_only_changes(self) -> None:
        assert isinstance(self, unittest.TestCase)
        seen: list[Observation] = []
        checks = self.start(on_decision=seen.append)
        now = 0.0
        checks.client._core.memory.now = lambda: now
        with self.assertLogs("sluice", "INFO") as logs:
            for status in (500, 200, 500, 200, 200):
                now += status == 200 and len(seen) >= 3  # a second passes before the last two
                result = checks.check(user_id="42")
                self.next().let(status)
                result.result(PATIENCE)
        sources = [o.decision.source for o in seen if o.decision and o.took >= 0 and o.check.user_id == "42"]
        self.assertEqual(sources, ["failure_mode", "server"] * 2 + ["server"])
        self.assertEqual(len(logs.output), 2)
        self.assertRegex(logs.output[0], r"does not decide.*open: sluice: protocol|unavailable \(500\)")
        self.assertIn("decides again, after 2 checks", logs.output[1])


class ThreadsTest(QueueCases, unittest.TestCase):
    kind = Threads

    def event(self, checks: Threads | Tasks) -> Interruptible:
        """What the check that waits longest waits for."""
        assert isinstance(checks, Threads)
        event = next(iter(checks.queue())).event
        assert isinstance(event, Interruptible)
        return event

    def test_the_place_of_an_interrupted_thread_is_freed_when_the_answer_comes(self) -> None:
        with mock.patch("sluice._sync.Event", Interruptible):
            checks = self.start()
            first = [checks.check(), checks.check()]
            alone = [self.next(), self.next()]
            leaver = checks.check(user_id="holder")
            self.await_waiting(checks, 1)
            left = self.event(checks)
            stayer = checks.check()
            self.await_waiting(checks, 2)
            alone[0].let()
            shared = self.next()
            left.interrupt()
            self.assertRaises(Interrupt, leaver.result, PATIENCE)
            shared.let()
            release = self.next()
            self.assertEqual((release.path, json.loads(release.body)), ("/v1/settle", {"reservation": "a place"}))
            release.let()
            alone[1].let()
            for result in (stayer, *first):
                self.assertEqual(result.result(PATIENCE).source, "server")

    def test_a_place_is_freed_before_the_process_ends(self) -> None:
        client = f"Sluice({self.server.url!r}, {TEST_KEY!r}, timeout=3)"
        code = f"from sluice import Sluice; {client}._release_later('a place')"
        path = str(Path(__file__).parents[1] / "src")
        with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}) as process:
            release = self.next()
            self.assertIsNone(process.poll())
            release.let()
            self.assertEqual(process.wait(PATIENCE), 0)

    def test_a_release_that_gets_no_thread_raises_nothing_and_nobody_waits_for_it(self) -> None:
        client = Sluice(gone_url(), TEST_KEY)
        with mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread")):
            client._release_later("a place")
        self.assertEqual(client._requests, [])

    def test_an_interrupted_thread_sends_for_nobody_and_another_one_does(self) -> None:
        with mock.patch("sluice._sync.Event", Interruptible):
            checks = self.start()
            first = [checks.check(), checks.check()]
            alone = [self.next(), self.next()]
            leaver = checks.check()
            self.await_waiting(checks, 1)
            self.event(checks).interrupt_when_set = True
            alone[0].let()
            self.assertRaises(Interrupt, leaver.result, PATIENCE)
            after = checks.check(user_id="after")
            held = self.next()
            self.assertEqual(held.users, ["after"])
            held.let()
            alone[1].let()
            for result in (after, *first):
                self.assertEqual(result.result(PATIENCE).source, "server")
            self.assertEqual(checks.queue().in_flight, 0)

    def test_close_waits_for_a_report_in_flight(self) -> None:
        checks = self.start()
        assert isinstance(checks, Threads)
        held: queue.Queue[Future[dict[str, Any]]] = queue.Queue()

        def answer(received: Received) -> dict[str, Any]:
            future: Future[dict[str, Any]] = Future()
            held.put(future)
            return future.result(PATIENCE)

        client = Sluice(Server(self, answer).url, TEST_KEY, timeout=PATIENCE)
        with ThreadPoolExecutor(2) as pool:
            report = pool.submit(client.report, "search", [0.001])
            arrived = held.get(timeout=PATIENCE)
            close = pool.submit(client.close)
            while not client._closed:
                time.sleep(0.001)
            self.assertFalse(close.done())
            arrived.set_result({"body": {"accepted": 1, "ignored": []}})
            self.assertTrue(report.result(PATIENCE))
            close.result(PATIENCE)

    def test_close_in_a_signal_handler_waits_for_nothing_that_it_interrupts(self) -> None:
        checks = self.start()
        assert isinstance(checks, Threads)
        closed = threading.Event()

        def close(*_: object) -> None:
            checks.client.close()
            closed.set()

        def others() -> tuple[bool, list[str]]:
            first = self.next()
            second = checks.check(user_id="second")
            held = self.next()
            waits = checks.check(user_id="waits")
            self.await_waiting(checks, 1)
            os.kill(os.getpid(), signal.SIGUSR1)
            results = [waits.result(PATIENCE)]  # though nothing in flight has an answer
            held.let()
            is_closed = closed.wait(PATIENCE)
            first.let()
            return is_closed, [decision.source for decision in (*results, second.result(PATIENCE))]

        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, close))
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(others)
            self.assertEqual(checks.client.check(Check(user_id="interrupted")).source, "server")
            self.assertEqual(other.result(PATIENCE), (True, ["failure_mode", "server"]))
        self.assertTrue(checks.client._http.is_closed)
        self.assertEqual(checks.client.check(Check()).source, "failure_mode")

    def test_close_returns_though_a_signal_handler_has_interrupted_the_lock(self) -> None:
        client = Sluice(gone_url(), TEST_KEY)
        with ThreadPoolExecutor(1) as pool, client._lock:
            pool.submit(client.close).result(PATIENCE)
        self.assertEqual(client.check(Check()).source, "failure_mode")

    def test_it_survives_a_fork(self) -> None:
        client = Sluice(Server(self, lambda _: {"body": {"allowed": True}}).url, TEST_KEY, timeout=PATIENCE)
        self.addCleanup(client.close)
        client.check(Check())
        with client._lock, client._core.memory._lock:  # as if another thread were at it
            child = os.fork()
            if child == 0:
                os._exit(0 if client.check(Check()).source == "server" else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(client.check(Check()).source, "server")


class TasksTest(QueueCases, unittest.TestCase):
    kind = Tasks

    def test_a_caller_that_leaves_takes_its_check_along(self) -> None:
        checks = self.start()
        first = [checks.check(), checks.check()]
        alone = [self.next(), self.next()]
        leaver, stayer = checks.check(user_id="leaver"), checks.check(user_id="stayer")
        self.await_waiting(checks, 2)
        leaver.cancel()
        self.await_waiting(checks, 1)
        alone[0].let()
        rest = self.next()
        self.assertEqual(rest.users, ["stayer"])
        rest.let()
        alone[1].let()
        for result in (stayer, *first):
            result.result(PATIENCE)

    def test_the_place_of_a_caller_that_left_is_freed_when_the_answer_comes(self) -> None:
        checks = self.start()
        leaver = checks.check(user_id="holder")
        held = self.next()
        leaver.cancel()
        held.let()
        release = self.next()
        self.assertEqual((release.path, json.loads(release.body)), ("/v1/settle", {"reservation": "a place"}))
        release.let()

    def test_close_waits_for_the_release_of_a_caller_that_left(self) -> None:
        checks = self.start()
        assert isinstance(checks, Tasks)
        leaver = checks.check(user_id="holder")
        held = self.next()
        leaver.cancel()
        close = asyncio.run_coroutine_threadsafe(checks.client.close(), checks._loop)
        while not checks.client._closed:
            time.sleep(0.001)
        held.let()
        release = self.next()
        self.assertEqual((release.path, close.done()), ("/v1/settle", False))
        release.let()
        close.result(PATIENCE)

    def test_close_waits_no_longer_than_it_says_for_what_never_ends(self) -> None:
        checks = self.start(timeout=0.02)
        assert isinstance(checks, Tasks)
        checks.check().result(PATIENCE)
        endless = asyncio.run_coroutine_threadsafe(self.spawn(checks), checks._loop).result(PATIENCE)
        asyncio.run_coroutine_threadsafe(checks.client.close(), checks._loop).result(PATIENCE)
        checks._loop.call_soon_threadsafe(endless.cancel)
        self.next().let()

    async def spawn(self, checks: Tasks) -> asyncio.Task[Any]:
        return checks.client._here().spawn(asyncio.sleep(10 * PATIENCE))

    def test_event_loops_that_share_a_client_keep_their_checks_apart(self) -> None:
        checks, other = self.start(), self.start()
        assert isinstance(checks, Tasks) and isinstance(other, Tasks)
        other.client = checks.client
        results = [checks.check(user_id=str(i)) for i in range(3)]
        alone = [self.next(), self.next()]
        self.await_waiting(checks, 1)
        results.append(other.check(user_id="other"))
        self.next().let()
        alone[0].let()
        self.next().let()
        alone[1].let()
        self.assertEqual([result.result(PATIENCE).source for result in results], ["server"] * 4)

    def test_twelve_thousand_checks_of_one_user_need_three_requests(self) -> None:
        self.flood(12_000)

    @mock.patch("sluice._queue.STALL", float("inf"))  # no more requests are added
    def test_a_stalled_event_loop_reads_its_answers_before_the_time_out_decides(self) -> None:
        burst, timeout = 5, 1.0
        checks = self.start(timeout=timeout)
        assert isinstance(checks, Tasks)
        results = [checks.check(user_id="flood") for _ in range(20)]
        alone = [self.next(), self.next()]
        self.await_waiting(checks, 18)
        began = time.monotonic()

        def stall() -> None:
            for request in alone:
                request.let()
            while time.monotonic() < began + timeout + 0.2:
                time.sleep(0.001)  # the server's threads run

        checks._loop.call_soon_threadsafe(stall)
        batch = self.next()
        batch.limit("flood", burst - 2)
        decisions = [result.result(PATIENCE) for result in results]
        self.assertEqual(sum(decision.allowed for decision in decisions), burst)
        self.assertLessEqual({decision.source for decision in decisions}, {"server", "memory"})

    def test_a_check_that_stalls_gets_another_request_while_overdue_ones_wait_for_calm(self) -> None:
        paused = threading.Semaphore(0)

        def pauses(*_: object) -> list[float]:
            paused.release()
            return [PATIENCE]

        with mock.patch("sluice._core.pauses", pauses):
            checks = self.start(timeout=0.5)
            results = [checks.check(user_id=str(i)) for i in range(3)]
            held = [self.next() for _ in results]
            for _ in range(4):  # three requests and the watch
                self.assertTrue(paused.acquire(timeout=PATIENCE))
            results.append(checks.check(user_id="later"))
            held.append(self.arrived.get(timeout=PATIENCE / 2))
            self.assertEqual(held[-1].users, ["later"])
            for request in held:
                request.let()
            for result in results:
                self.assertEqual(result.result(PATIENCE).source, "server")

    def test_another_event_loop_begins_anew(self) -> None:
        client = AsyncSluice(Server(self, lambda _: {"body": {"allowed": True}}).url, TEST_KEY, timeout=PATIENCE)
        for _ in range(2):
            self.assertEqual(asyncio.run(client.check(Check())).source, "server")
        self.assertEqual(len(client._loops), 1)  # one that has ended is forgotten


class OptionsTest(unittest.TestCase):
    def test_options_that_cannot_work_are_refused_and_the_key_is_not_named(self) -> None:
        good: dict[str, Any] = {"url": "http://127.0.0.1:8080", "key": TEST_KEY}
        bads: list[dict[str, Any]] = [
            {"url": "127.0.0.1:8080"},
            {"url": f"http://{TEST_KEY}@127.0.0.1"},
            {"url": TEST_KEY},
            {"url": "http://127.0.0.1:80\n80"},
            {"url": "http://127.0.0.1:65536"},
            {"url": f"http://127.0.0.1:{TEST_KEY}"},
            {"url": "http://[::1"},
            {"url": f"http://[{TEST_KEY}]"},
            {"url": "http://sluice..example"},
            {"url": f"http://{'x' * 64}.example"},
            {"url": "http://xn--a"},
            {"url": "http://slüice.example"},
            {"url": "http://sluice\\example"},
            {"url": "http://127.0.0.1/a b"},
            {"key": ""},
            {"key": f"{TEST_KEY}\n"},
            {"timeout": 0},
            {"timeout": float("nan")},
            {"failure_mode": "ajar"},
        ]
        for bad in bads:
            with self.subTest(str(bad)), self.assertRaises(ValueError) as raised:
                Sluice(**{**good, **bad})
            self.assertNotIn("topsecret", str(raised.exception))

    def test_a_cost_that_is_no_number_is_refused_unsent(self) -> None:
        client = Sluice(gone_url(), TEST_KEY)
        with self.assertRaisesRegex(SluiceError, "request.*/cost"):
            client.check(Check(cost=float("nan")))
        with self.assertRaisesRegex(SluiceError, "request.*/cost"):
            client.settle("r1", float("inf"))

    def test_addresses_that_can_be_asked_are_taken(self) -> None:
        for url in ("http://[::A]:80", "HTTPS://Sluice.Example/a%20proxy/", "http://xn--mller-kva.de.", "http://a_b"):
            Sluice(url, TEST_KEY)

    def test_a_request_that_cannot_be_made_leaves_the_decision_to_the_failure_mode(self) -> None:
        async def check(client: AsyncSluice) -> Decision:
            return await client.check(Check())

        for base in ("http://sluice..example", "http://sluice:x"):
            client, tasks = Sluice(gone_url(), TEST_KEY), AsyncSluice(gone_url(), TEST_KEY)
            client._core.base = tasks._core.base = base
            self.assertEqual(client.check(Check()).source, "failure_mode")
            self.assertEqual(asyncio.run(check(tasks)).source, "failure_mode")

    def test_what_the_server_would_refuse_is_refused_unsent(self) -> None:
        alone: Any = 42
        cases: list[tuple[Check, str]] = [
            (Check(user_id="\ud800"), "/user_id"),
            (Check(user_id="x\0"), "/user_id"),
            (Check(user_id="é" * 128 + "x"), "/user_id"),
            (Check(user_id=10**256), "/user_id"),
            (Check(plan="x" * 257), "/plan"),
            (Check(endpoint="/\udfff"), "/endpoint"),
            (Check(endpoint="x" * 1025), "/endpoint"),
            (Check(endpoint=alone), "/endpoint"),
            (Check(method="X" * 33), "/method"),
            (Check(method="GE T"), "/method"),
            (Check(ip="unknown"), "/ip"),
            (Check(ip="203.0.113.9:80"), "/ip"),
            (Check(ip="fe80::1%eth0"), "/ip"),
            (Check(attributes={"org": "\ud800"}), "/attributes/org"),
            (Check(attributes={"org": "x" * 257}), "/attributes/org"),
            (Check(attributes={"org": alone}), "/attributes/org"),
            (Check(attributes={"\ud800": "x"}), "/attributes"),
            (Check(attributes={"x" * 65: "x"}), "/attributes"),
            (Check(attributes={str(i): "" for i in range(17)}), "/attributes"),
            (Check(cost=-1), "/cost"),
            (Check(cost=1e9 + 1), "/cost"),
            (Check(costs={"usd": -1}), "/costs/usd"),
            (Check(costs={"\ud800": 1}), "/costs"),
            (Check(costs={f"m{i}": 1 for i in range(8)}), "/costs"),
        ]
        client = Sluice(gone_url(), TEST_KEY)
        for check, pointer in cases:
            with self.subTest(ascii(check)), self.assertRaises(SluiceError) as raised:
                client.check(check)
            self.assertEqual((raised.exception.kind, raised.exception.fields[0].pointer), ("request", pointer))
            str(raised.exception).encode()  # as the log does
        self.assertRaisesRegex(SluiceError, "request.*/reserve_for", client.reserve, Check(), 86_401)

    def test_what_the_server_would_take_is_sent(self) -> None:
        checks = [
            Check("é" * 128, "x" * 256, "x" * 1024, "M-SEARCH", "::ffff:203.0.113.9", 1e9, {"Org.a_b-1": "x" * 256}),
            Check(-42, cost=-1e-9, attributes={str(i): "" for i in range(16)}),
            Check(costs={"requests": 0, **{f"m{i}": 1e9 for i in range(7)}}),
            Check("", "", "", "", ""),
        ]
        for check in checks:
            self.assertEqual(Sluice(gone_url(), TEST_KEY).reserve(check, 86_400).source, "failure_mode")

    def test_reports_count_latencies_by_bucket(self) -> None:
        server = Server(self, lambda r: {"body": {"accepted": 1, "ignored": []}})
        with Sluice(server.url, TEST_KEY) as client:
            self.assertTrue(client.report("search", [0, 0.001, 0.3, 0.3001, 90], errors=2))
        (request,) = server.requests
        self.assertEqual(request.path, "/v1/report")
        want = {"backend": "search", "requests": 5, "errors": 2, "latency_ms": {"1": 2, "300": 1, "500": 1, "inf": 1}}
        self.assertEqual(json.loads(request.body), {"reports": [want]})

    def test_an_answer_to_a_report_of_another_type_is_an_error(self) -> None:
        answers: list[Any] = [{"accepted": "1"}, {"accepted": True}, {"accepted": []}, [1], "accepted", 1]
        server = Server(self, lambda r: {"body": answers[0]})
        with Sluice(server.url, TEST_KEY) as client:
            while answers:
                with self.assertRaisesRegex(SluiceError, "protocol"):
                    client.report("search", [0.001])
                answers.pop(0)

    def test_a_closed_client_leaves_the_decision_to_the_failure_mode(self) -> None:
        with Sluice(gone_url(), TEST_KEY) as client:
            pass
        self.assertEqual(client.check(Check()).source, "failure_mode")

    def test_the_memory_of_denials_is_bounded(self) -> None:
        memory = Memory(60)
        denial = Decision(False, 429, "limit_exceeded", retry_after=60)
        for i in range(30_000):
            memory.learn(Question("", str(i), 1), denial)
        self.assertEqual(len(memory), 10_000)
        self.assertIsNotNone(memory.recall(Question("", "29999", 1)))

    def test_the_version_is_that_of_the_package(self) -> None:
        packaged = (Path(__file__).parents[1] / "pyproject.toml").read_text()
        self.assertIn(f'\nversion = "{__version__}"\n', packaged)

    def test_a_build_for_pip_leaves_nothing_in_the_folder(self) -> None:
        folder = Path(__file__).parents[1]

        def listed() -> set[Path]:
            return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}

        before = listed()
        with tempfile.TemporaryDirectory() as built:
            code = "import sys, flit_core.buildapi as b; print(b.build_wheel(sys.argv[1]))"
            run = subprocess.run([sys.executable, "-c", code, built], cwd=folder, capture_output=True, text=True)
            self.assertEqual(run.returncode, 0, run.stderr)
            names = set(zipfile.ZipFile(Path(built) / run.stdout.strip()).namelist())
        self.assertEqual(listed(), before)
        self.assertLessEqual({f"sluice/{path.name}" for path in (folder / "src/sluice").glob("*.py*")}, names)
        self.assertIn("sluice/py.typed", names)
        self.assertIn(f"sluicegate-{__version__}.dist-info/LICENSE", names)


class LimiterTest(unittest.TestCase):
    def test_it_allows_a_burst_and_then_the_rate(self) -> None:
        limiter = Limiter(5, 20)  # 20 at once, then 5 a second
        now = 0.0
        limiter.now = lambda: now

        def count() -> int:
            n = 0
            while limiter.allow():
                n += 1
            return n

        self.assertEqual(count(), 20)
        now += 1
        self.assertEqual(count(), 5)
        now += 3600
        self.assertEqual(count(), 20)
        now += 0.1
        self.assertEqual(count(), 0)
        self.assertAlmostEqual(limiter.reserve() or 0, 0.1)
        self.assertAlmostEqual(limiter.tokens, -0.5)
        self.assertIsNone(limiter.reserve(21))
        self.assertFalse(limiter.allow(21))
        self.assertRaises(ValueError, limiter.wait, 21)
        self.assertRaises(ValueError, Limiter, 0, 1)
        self.assertRaises(ValueError, Limiter, 1, 0)

    def test_it_waits(self) -> None:
        limiter = Limiter(1000, 1)
        began = time.monotonic()
        for _ in range(11):
            limiter.wait()

        async def ten() -> None:
            await asyncio.gather(*(limiter.wait_async() for _ in range(10)))

        asyncio.run(ten())
        self.assertGreaterEqual(time.monotonic() - began, 0.0195)

    def test_a_cancelled_caller_gives_its_tokens_back(self) -> None:
        limiter = Limiter(0.001, 1)
        limiter.allow()

        async def leave() -> None:
            task = asyncio.create_task(limiter.wait_async())
            await asyncio.sleep(0)
            self.assertLess(limiter.tokens, -0.9)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(leave())
        self.assertAlmostEqual(limiter.tokens, 0, places=2)


if __name__ == "__main__":
    unittest.main()
