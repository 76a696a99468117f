from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from ._types import Decision
from ._wire import Question

#: Bounds the cache, because callers can invent identities.
MAX_DENIALS = 10_000
#: The life of a denial that no wait ends, such as by a block rule.
WITHOUT_WAIT = 1.0


@dataclass
class Denial:
    decision: Decision
    cost: float
    at: float
    until: float = 0

    def decided(self, now: float) -> Decision:
        """The denial with its remaining waits."""
        decision, passed = self.decision, now - self.at
        return replace(
            decision,
            tiers=[
                replace(
                    tier,
                    retry_after=tier.retry_after and max(0.001, tier.retry_after - passed),
                    reset_after=tier.reset_after and max(0.0, tier.reset_after - passed),
                    more_after=tier.more_after and max(0.0, tier.more_after - passed),
                )
                for tier in decision.tiers
            ],
            source="memory",
            retry_after=None if decision.retry_after is None else max(0.001, decision.retry_after - passed),
            reset_after=None if decision.reset_after is None else max(0.0, decision.reset_after - passed),
        )


class Memory:
    """Caches denials by identity. A check of lower cost may pass, so the server is asked."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._denials: dict[str, Denial] = {}
        self._lock = Lock()
        self.now: Callable[[], float] = time.monotonic

    def __len__(self) -> int:
        return len(self._denials)

    def unlock(self) -> None:
        """In a forked process no other thread holds the lock."""
        self._lock = Lock()

    def recall(self, question: Question) -> Decision | None:
        denial = self._denials.get(question.identity)
        if denial is None or question.cost <= 0:
            return None
        now = self.now()
        if now >= denial.until:
            with self._lock:
                self._denials.pop(question.identity, None)
            return None
        if question.cost < denial.cost:
            return None
        return denial.decided(now)

    def learn(self, question: Question, decision: Decision) -> None:
        """Caches a denial, unless it may end at any moment, as by a concurrency limit."""
        if decision.allowed or self._longest <= 0 or question.cost <= 0 or decision.status != 429 or decision.degraded:
            return
        if decision.reason == "limit_exceeded":
            wait = decision.retry_after or 0
        elif decision.reason in ("blocked", "cost_exceeds_limit"):
            wait = WITHOUT_WAIT
        else:
            return
        now = self.now()
        denial = Denial(replace(decision), question.cost, now, now + min(wait, self._longest))
        with self._lock:
            if len(self._denials) >= MAX_DENIALS:
                del self._denials[next(iter(self._denials))]  # the oldest
            self._denials.pop(question.identity, None)
            self._denials[question.identity] = denial
