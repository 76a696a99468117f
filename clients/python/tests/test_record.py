from __future__ import annotations

import asyncio
import json
import unittest
from typing import Any

from sluice import AsyncSluice, Check, Recorded, Sluice, SluiceError

from .servers import TEST_KEY, Server

ID = "0123456789abcdef"
AWAY = {"status": 503, "body": {"type": "urn:sluice:problem:unavailable", "title": "away"}}
FULL = {"status": 429, "body": {"type": "urn:sluice:problem:record-ids-exhausted", "title": "full"}}
LOST = {"fault": "truncated"}
TIERS = [{"rule_id": 12, "charged": 2.5}, {"rule_id": 13, "charged": 0}]
RECORDED = {"body": {"allowed": True, "recorded": True, "tiers": TIERS}}
CHECKED = {"body": {"allowed": True, "tiers": []}}


class RecordTest(unittest.TestCase):
    def test_a_record_is_sent_again_only_with_an_id(self) -> None:
        cases: list[tuple[str | None, list[dict[str, Any]], int, int | None]] = [
            (ID, [RECORDED], 1, None),
            (ID, [LOST, AWAY, RECORDED], 3, None),
            (ID, [AWAY, AWAY, AWAY, AWAY], 3, 503),
            (ID, [FULL, RECORDED], 1, 429),
            (None, [AWAY, RECORDED], 1, 503),
            (None, [LOST, RECORDED], 1, 0),
            (ID, [CHECKED, RECORDED], 1, 200),
        ]
        for kind in (Sluice, AsyncSluice):
            for id, answers, sent, status in cases:
                with self.subTest(f"{kind.__name__} {id} {answers}"):
                    asyncio.run(self.record(kind, id, answers, sent, status))

    async def record(self, kind: Any, id: str | None, answers: list[dict[str, Any]], sent: int, status: int | None) -> None:
        left = list(answers)
        server = Server(self, lambda _: left.pop(0))
        client = kind(server.url, TEST_KEY, timeout=20)
        check = Check(user_id=42, cost=7)
        try:
            if kind is Sluice:
                got = await asyncio.to_thread(client.record, check, 2.5, id)
            else:
                got = await client.record(check, 2.5, id)
            self.assertEqual((got, status), (Recorded(True, {12: 2.5}), None))
        except SluiceError as error:
            self.assertEqual(error.status, status)
        finally:
            if kind is Sluice:
                client.close()
            else:
                await client.close()
        requests = server.take()
        self.assertEqual(len(requests), sent)
        for request in requests:
            want: dict[str, Any] = {"user_id": "42", "cost": 2.5, "record": True}
            self.assertEqual(request.path, "/v1/check")
            self.assertEqual(json.loads(request.body), {**want, "record_id": id} if id else want)
