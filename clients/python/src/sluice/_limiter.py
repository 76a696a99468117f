from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from threading import Lock


class Limiter:
    """A local token bucket for requests to a limited service. It begins full. Threads may share it."""

    def __init__(self, per_second: float, burst: float) -> None:
        """Allows `per_second` requests a second, and up to `burst` at once; refills continuously."""
        if not (0 < per_second < math.inf and 1 <= burst < math.inf):
            raise ValueError(
                f"sluice: Limiter({per_second}, {burst}): the rate must be above 0 and the burst at least 1"
            )
        self._per_token = 1 / per_second  # seconds
        self._burst = burst
        self._full_at = 0.0  # one number is the whole state (GCRA)
        self._lock = Lock()
        self.now: Callable[[], float] = time.monotonic

    @property
    def tokens(self) -> float:
        """Available tokens, below 0 after reservations."""
        return self._burst - max(0.0, self._full_at - self.now()) / self._per_token

    def allow(self, n: float = 1) -> bool:
        """Takes n tokens if there are as many."""
        return self._take(n, 0) is not None

    def wait(self, n: float = 1) -> None:
        """Waits for n tokens and takes them, in order of the callers. Raises, and takes nothing, if n is above the
        burst."""
        time.sleep(self._sure(n))

    async def wait_async(self, n: float = 1) -> None:
        """wait for asyncio. A cancelled caller returns its tokens."""
        delay = self._sure(n)
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            with self._lock:
                self._full_at -= n * self._per_token
            raise

    def reserve(self, n: float = 1) -> float | None:
        """Takes n tokens ahead of time. Returns the seconds to wait before acting; None if n is above the burst."""
        return self._take(n, math.inf)

    def _sure(self, n: float) -> float:
        delay = self._take(n, math.inf)
        if delay is None:
            raise ValueError(f"sluice: {n} tokens are asked for, and the bucket holds {self._burst}")
        return delay

    def _take(self, n: float, longest: float) -> float | None:
        """Takes n tokens that are available within longest seconds, and returns the delay."""
        if not 0 <= n <= self._burst:
            return None
        with self._lock:
            now = self.now()
            after = max(self._full_at, now) + n * self._per_token
            delay = max(0.0, after - now - self._burst * self._per_token)
            if delay > longest + 1e-6:  # sums of fractions may be off
                return None
            self._full_at = after
            return delay
