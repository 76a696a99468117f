from __future__ import annotations

import random
import time
from collections.abc import Callable

from ._types import SluiceError

#: Time-outs that a check or a pause lasts at most.
LONGEST = 10
#: After so many failures in a row the failure mode decides at once, except for one probe after each pause.
FAILURES_UNTIL_PROBING = 5
MAX_PAUSE = 5.0  # seconds


class Breaker:
    """Bounds the cost of a failing server. Pauses between probes double from one time-out to LONGEST, at most
    MAX_PAUSE. Threads share it without a lock: a race lets a second probe through."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self.now: Callable[[], float] = time.monotonic
        self._failures = 0  # in a row
        self._pause = 0.0
        self._next = 0.0  # when the next probe may start
        self._probing = False

    def is_open(self) -> bool:
        return self._failures >= FAILURES_UNTIL_PROBING

    def admit(self) -> None:
        """Raises unless a request may be sent, which is a probe if the breaker is open."""
        if not self.is_open():
            return
        now = self.now()
        if now < self._next:
            raise SluiceError("connection", "The last requests failed, and it is too early for another one.")
        self._probing, self._next = True, now + self._timeout

    def ended(self, is_answered: bool) -> None:
        if is_answered:
            self._failures, self._pause, self._probing = 0, 0.0, False
            return
        self._failures += 1
        if self._failures == FAILURES_UNTIL_PROBING or self._probing:
            self._pause = min(max(self._timeout, 2 * self._pause), LONGEST * self._timeout, MAX_PAUSE)
            self._probing = False
            # The jitter keeps the processes of a service from probing together.
            self._next = self.now() + self._pause * (1 + random.random()) / 2
