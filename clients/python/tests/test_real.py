"""Both clients on a real Sluice, `sluice dev`, behind a proxy that can fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from sluice import AsyncSluice, Check, Decision, Settlement, Sluice, SluiceError

from .servers import CHECKOUT, DEMO_KEY, PATIENCE, Proxy, RealSluice

logging.getLogger("sluice").addHandler(logging.NullHandler())
logging.getLogger("sluice").propagate = False


class RealTest(unittest.TestCase):
    sluice: RealSluice

    @classmethod
    def setUpClass(cls) -> None:
        cls.sluice = RealSluice()
        cls.addClassCleanup(cls.sluice.stop)

    def start(self, **options: Any) -> Sluice:
        everything: dict[str, Any] = {"url": self.sluice.url, "key": DEMO_KEY, "timeout": PATIENCE, **options}
        client = Sluice(**everything)
        self.addCleanup(client.close)
        return client

    def test_the_fourth_report_is_denied_and_waiting_is_enough(self) -> None:
        client = self.start()
        report = Check(user_id="py", endpoint="/api/reports", cost=0.1)
        passed, denied = 0, client.check(report)
        while denied.allowed and passed < 100:  # at least 30, and some more are earned meanwhile
            self.assertEqual(denied.source, "server")
            passed, denied = passed + 1, client.check(report)
        self.assertGreaterEqual(passed, 30)
        self.assertEqual(
            (denied.allowed, denied.reason, denied.violated_rule, denied.limit, denied.plan),
            (False, "limit_exceeded", "user:{user_id}:endpoint:/api/reports", 3, "free"),
        )
        self.assertGreater(len(denied.tiers), 3)
        self.assertEqual(client.check(report).source, "memory")
        look = Check(user_id="py", endpoint="/api/reports", cost=0)
        self.assertEqual(client.check(look).source, "server")
        assert denied.retry_after is not None
        self.assertTrue(0 < denied.retry_after <= 1, denied.retry_after)
        time.sleep(denied.retry_after)  # the promise is that this very wait is enough
        self.assertTrue(client.check(report).allowed)

    def test_the_code_that_the_web_ui_shows_runs(self) -> None:
        snippets = CHECKOUT / "clients/testdata/snippets"

        def run(name: str) -> str:
            code = (snippets / f"{name}.py").read_text()
            code = code.replace('"http://127.0.0.1:8080", ', f'"{self.sluice.url}", timeout={PATIENCE}, key=')
            environment = {**os.environ, "SLUICE_KEY": DEMO_KEY, "PYTHONPATH": str(CHECKOUT / "clients/python/src")}
            return subprocess.run(
                [sys.executable, "-W", "ignore", "-"], input=code, env=environment, check=True, capture_output=True, text=True
            ).stdout

        printed = [run("plain") for _ in range(3)]
        self.assertEqual(printed, ["allowed\n"] * 3)
        while printed[-1] == "allowed\n" and len(printed) < 30:  # some more are earned meanwhile
            printed.append(run("plain"))
        self.assertRegex(printed[-1], "^denied, wait [0-9.]+ s\n$")
        self.assertEqual(run("every"), "allowed\n")
        # The bucket of that user has lost tokens, so the check was as in the file.
        check: dict[str, Any] = {**json.loads((snippets / "every.json").read_text()), "cost": 0}
        self.assertEqual(self.start().check(Check(**check)).remaining, 0)

    def test_threads_keep_their_answers_apart_and_a_bad_check_fails_alone(self) -> None:
        client = self.start()
        with ThreadPoolExecutor(50) as pool:
            bad = pool.submit(client.check, Check(user_id="x" * 257))
            checks = [
                (user, pool.submit(client.check, Check(user_id=f"threads-{user}", endpoint="/api/reports")))
                for user in range(20)
                for _ in range(5)
            ]
        self.want_three_each([(user, check.result()) for user, check in checks])
        error = bad.exception()
        assert isinstance(error, SluiceError)
        self.assertEqual(error.fields[0].pointer, "/user_id")

    def test_tasks_keep_their_answers_apart_and_a_bad_check_fails_alone(self) -> None:
        async def ask() -> None:
            async with AsyncSluice(self.sluice.url, DEMO_KEY, timeout=PATIENCE) as client:
                users = [user for user in range(20) for _ in range(5)]
                checks = [client.check(Check(user_id=f"tasks-{user}", endpoint="/api/reports")) for user in users]
                bad = client.check(Check(user_id="x" * 257))
                *decisions, error = await asyncio.gather(*checks, bad, return_exceptions=True)
                assert isinstance(error, SluiceError)
                self.assertEqual(error.fields[0].pointer, "/user_id")
                self.want_three_each([(user, d) for user, d in zip(users, decisions) if isinstance(d, Decision)])

        asyncio.run(ask())

    def want_three_each(self, decisions: list[tuple[int, Decision]]) -> None:
        self.assertEqual(len(decisions), 100)
        for user in range(20):
            self.assertEqual(sum(d.allowed for asker, d in decisions if asker == user), 3)

    def test_a_batch_is_decided_in_order(self) -> None:
        client = self.start()
        report = Check(user_id="py-batch", endpoint="/api/reports", cost=2)
        last = Check(user_id="py-batch", endpoint="/api/reports")
        self.assertEqual([d.allowed for d in client.check_batch([report, report, last])], [True, False, True])
        with self.assertRaises(SluiceError):
            client.check_batch([report, Check(ip="x")])

    def test_reservations_are_settled_and_usage_is_told(self) -> None:
        client = self.start()
        report = Check(user_id="py a&b", endpoint="/api/reports")

        def reserve(cost: float) -> str:
            decision = client.reserve(replace(report, cost=cost), hold=90)
            assert decision.allowed and decision.reservation, decision
            return decision.reservation

        reservation = reserve(2)
        self.assertEqual(client.extend(reservation), Settlement(False, 0, True))
        self.assertEqual(client.settle(reservation, 0.5), Settlement(True, 0.5))
        self.assertEqual(client.settle(reservation, 0.5), Settlement(False))
        self.assertEqual(client.extend(reservation), Settlement(False))
        self.assertEqual(client.cancel(reserve(1)), Settlement(True))
        self.assertEqual(client.release(reserve(0.5)), Settlement(True, 0.5))
        usage = client.usage("py a&b")
        (own,) = (limit for limit in usage["limits"] if limit["key_pattern"] == "user:{user_id}:endpoint:/api/reports")
        self.assertEqual((usage["user_id"], usage["plan"], own["limit"]), ("py a&b", "free", 3))
        self.assertTrue(0 < own["used"] <= 1, own)

        async def ask() -> None:
            async with AsyncSluice(self.sluice.url, DEMO_KEY, timeout=PATIENCE) as client:
                decision = await client.reserve(Check(user_id="py-async", cost=2))
                self.assertEqual(await client.settle(decision.reservation, 1), Settlement(True, 1))
                self.assertEqual((await client.usage("py-async"))["user_id"], "py-async")

        asyncio.run(ask())

    def test_a_wrong_key_is_named_without_the_key(self) -> None:
        decision = self.start(key=DEMO_KEY.replace("0123", "9999"), failure_mode="closed").check(Check(user_id="42"))
        assert decision.error is not None
        self.assertEqual((decision.allowed, decision.status, decision.error.kind), (False, 503, "key"))
        self.assertNotIn("99994567", f"{decision.error!r} {decision}")

    def test_no_thread_waits_longer_than_the_timeout_and_all_recover(self) -> None:
        proxy = Proxy(self, self.sluice.url)
        client = self.start(url=proxy.url, timeout=0.5)
        counts = Counts()
        stop = threading.Event()

        def load(user: int) -> None:
            while not stop.is_set():
                began = time.monotonic()
                counts.add(client.check(Check(user_id=f"load-{user}", cost=0)), time.monotonic() - began)
                stop.wait(0.001)

        with ThreadPoolExecutor(16) as pool:
            running = [pool.submit(load, user) for user in range(16)]
            try:
                self.ride_out(proxy, counts)
            finally:
                stop.set()
        for one in running:
            one.result()
        self.assertLess(counts.longest, 0.5 + 0.75)  # where tests run in parallel, processors are scarce

    def test_no_task_waits_longer_than_the_timeout_and_all_recover(self) -> None:
        proxy = Proxy(self, self.sluice.url)
        counts = Counts()

        async def load(client: AsyncSluice, user: int, stop: threading.Event) -> None:
            while not stop.is_set():
                began = time.monotonic()
                counts.add(await client.check(Check(user_id=f"load-{user}", cost=0)), time.monotonic() - began)
                await asyncio.sleep(0.001)

        async def run() -> None:
            stop = threading.Event()
            async with AsyncSluice(proxy.url, DEMO_KEY, timeout=0.5) as client:
                running = [asyncio.create_task(load(client, user, stop)) for user in range(16)]
                try:
                    await asyncio.to_thread(self.ride_out, proxy, counts)
                finally:
                    stop.set()
                await asyncio.gather(*running)

        asyncio.run(run())
        self.assertLess(counts.longest, 0.5 + 0.75)

    def ride_out(self, proxy: Proxy, counts: Counts) -> None:
        counts.grow("server")
        for fail in (proxy.gone, proxy.hang):
            fail()
            counts.grow("failure_mode")
            proxy.back()
            counts.grow("server")


class Counts:
    def __init__(self) -> None:
        self.by = {"server": 0, "memory": 0, "failure_mode": 0}
        self.longest = 0.0
        self._lock = threading.Lock()

    def add(self, decision: Decision, took: float) -> None:
        assert decision.allowed, "open is to pass"
        with self._lock:
            self.by[decision.source] += 1
            self.longest = max(self.longest, took)

    def grow(self, source: str) -> None:
        wanted, deadline = self.by[source] + 50, time.monotonic() + PATIENCE
        while self.by[source] < wanted:
            assert time.monotonic() < deadline, f"no more decisions of {source}: {self.by}"
            time.sleep(0.005)


if __name__ == "__main__":
    unittest.main()
