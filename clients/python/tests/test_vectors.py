"""Replays clients/testdata/vectors.json, which all clients share, with both clients."""

from __future__ import annotations

import asyncio
import inspect
import json
import unittest
from dataclasses import asdict
from typing import Any

from sluice import AsyncSluice, Check, Decision, Sluice, SluiceError, __version__

from .servers import CHECKOUT, TEST_KEY, Received, Server, gone_url

CASES = json.loads((CHECKOUT / "clients/testdata/vectors.json").read_text("utf-8"))["cases"]


class VectorsTest(unittest.TestCase):
    maxDiff = None

    def test_there_are_vectors(self) -> None:
        self.assertGreaterEqual(len(CASES), 40)

    def test_threads(self) -> None:
        for case in CASES:
            with self.subTest(case["name"]):
                asyncio.run(self.replay(case, Sluice))

    def test_asyncio(self) -> None:
        for case in CASES:
            with self.subTest(case["name"]):
                asyncio.run(self.replay(case, AsyncSluice))

    async def replay(self, case: dict[str, Any], kind: type[Sluice] | type[AsyncSluice]) -> None:
        answers: list[dict[str, Any]] = []
        nothing = {"status": 418, "text": "nothing was expected"}
        server = Server(self, lambda _: answers.pop() if answers else nothing)
        slow = any(step.get("answer", {}).get("fault") in ("slow", "trickle", "trickle_header") for step in case["steps"])
        config = case["config"]
        client: Any = kind(
            gone_url() if case.get("gone") else server.url,
            TEST_KEY,
            # A busy machine must not turn other faults into a time-out.
            timeout=0.2 if slow else 20,
            failure_mode=config.get("failure_mode", "open"),
            denial_memory=config.get("denial_memory_ms", 5000) / 1000,
        )
        now = 0.0
        client._core.memory.now = lambda: now
        with self.assertLogs("sluice") as logs:
            client._core.fall_back(SluiceError("timeout", "assertLogs wants a line"))
            client._core._failed_checks = 0
            for step in case["steps"]:
                if "advance_ms" in step:
                    now += step["advance_ms"] / 1000
                    continue
                answers[:] = [step["answer"]] if "answer" in step else []
                await self.run_step(client, step)
                self.want_sent(step, server.take())
        self.assertNotIn("topsecret", "\n".join(logs.output))
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing

    async def run_step(self, client: Any, step: dict[str, Any]) -> None:
        try:
            got = call(client, step)
            if inspect.isawaitable(got):
                got = await got
        except SluiceError as error:
            if "error" not in step:
                raise
            fields = [field._asdict() for field in error.fields]
            have = {**vars(error), "fields": fields}
            self.assertEqual({name: have[name] for name in step["error"]}, step["error"])
            self.assertNotIn("topsecret", f"{error!r} {error} {error.__cause__!r} {error.__context__!r}")
            return
        self.assertNotIn("error", step, "no error was raised")
        if "decision" in step:
            self.want_decision(got, step["decision"])
        for decision, want in zip(got, step["decisions"]) if "decisions" in step else ():
            self.want_decision(decision, want)
        if "settlement" in step:
            have = asdict(got)
            self.assertEqual({name: have[name] for name in step["settlement"]}, step["settlement"])
        if "usage" in step:
            self.assertEqual(got, step["usage"])

    def want_decision(self, decision: Decision, want: dict[str, Any]) -> None:
        have = plain(asdict(decision))
        have["error_kind"] = decision.error.kind if decision.error else None
        self.assertEqual({name: have[name] for name in want}, want)

    def want_sent(self, step: dict[str, Any], got: list[Received]) -> None:
        if "answer" not in step:
            self.assertEqual(got, [])
            return
        self.assertEqual(len(got), 1, got)
        request, sent = got[0], step["sent"]
        self.assertEqual((request.method, request.path), (sent["method"], sent["path"]))
        self.assertEqual(json.loads(request.body) if request.body else None, sent.get("body"))
        self.assertEqual(request.headers["authorization"], f"Bearer {TEST_KEY}")
        self.assertEqual(request.headers["user-agent"], f"sluice-python/{__version__}")
        if request.body:
            self.assertEqual(request.headers["content-type"], "application/json")


def call(client: Any, step: dict[str, Any]) -> Any:
    kind = step["call"]
    if kind == "check":
        return client.check(Check(**step["check"]))
    if kind == "reserve":
        return client.reserve(Check(**step["check"]), step["hold_ms"] / 1000)
    if kind == "batch":
        return client.check_batch([Check(**check) for check in step["checks"]])
    if kind == "settle":
        return client.settle(step["reservation"], step.get("costs") or step["cost"])
    if kind == "usage":
        return client.usage(step["user_id"], plan=step.get("plan"))
    if kind == "extend":
        return client.extend(step["reservation"], step.get("costs"))
    return {"cancel": client.cancel, "release": client.release}[kind](step["reservation"])


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """In the words of the vectors: times are in milliseconds."""
    found: dict[str, Any] = {}
    for name, member in value.items():
        if name in ("retry_after", "reset_after", "delay"):
            found[f"{name}_ms"] = None if member is None else round(member * 1000, 6)
        elif name in ("window", "more_after"):
            pass  # test_middleware sees these
        elif name == "meter" and member is None:
            pass  # most rules count requests
        elif name == "tiers":
            found[name] = [plain(tier) for tier in member]
        else:
            found[name] = member
    return found


if __name__ == "__main__":
    unittest.main()
