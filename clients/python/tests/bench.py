"""What sharing requests gains, and what the client adds to a bare request, as ratios in one run:
PYTHONPATH=src python3 -m tests.bench

On a Sluice of its own, or on the one at SLUICE_URL with the key SLUICE_KEY, as `make bench` does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from statistics import median

import httpx

from sluice import AsyncSluice, Check

from .servers import DEMO_KEY, RealSluice

CALLERS = 64
ROUND = 0.7  # seconds
ROUNDS = 7


async def closed_loop(callers: int, call: Callable[[int], Awaitable[None]]) -> float:
    began, calls = time.monotonic(), 0

    async def loop(caller: int) -> None:
        nonlocal calls
        while time.monotonic() - began < ROUND:
            await call(caller)
            calls += 1

    await asyncio.gather(*(loop(caller) for caller in range(callers)))
    return calls / (time.monotonic() - began)


async def main(url: str, key: str) -> None:
    async with (
        AsyncSluice(url, key, timeout=10) as shared,
        AsyncSluice(url, key, timeout=10, batch=False) as unbatched,
        httpx.AsyncClient(trust_env=False) as http,
    ):

        def asked(client: AsyncSluice) -> Callable[[int], Awaitable[None]]:
            async def ask(caller: int) -> None:
                decision = await client.check(Check(user_id=f"bench-{caller}", endpoint="/api/search", cost=0))
                if decision.source != "server":
                    raise RuntimeError(f"the decision is from {decision.source}: {decision.error}")

            return ask

        async def bare(caller: int) -> None:
            body = f'{{"user_id":"bench-{caller}","endpoint":"/api/search","cost":0}}'
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            await http.post(f"{url}/v1/check", content=body, headers=headers)

        sides: list[tuple[int, Callable[[int], Awaitable[None]], list[float]]] = [
            (CALLERS, asked(unbatched), []),
            (CALLERS, asked(shared), []),
            (1, bare, []),
            (1, asked(shared), []),
        ]
        for i in range(ROUNDS + 1):
            for callers, call, rates in sides:
                rate = await closed_loop(callers, call)
                if i > 0:  # the first warms up
                    rates.append(rate)
    u, s, b, a = (rates for _, _, rates in sides)
    ratio = median(one / other for one, other in zip(s, u))
    print(
        f"{CALLERS} concurrent checks: {median(u):.0f}/s unbatched, {median(s):.0f}/s coalesced, ratio {ratio:.2f}\n"
        f"a lone check: {1e6 / median(b):.0f} µs bare, {1e6 / median(a):.0f} µs with the client, "
        f"ratio {median(one / other for one, other in zip(b, a)):.2f}"
    )


if __name__ == "__main__":
    if "SLUICE_URL" in os.environ:
        asyncio.run(main(os.environ["SLUICE_URL"], os.environ["SLUICE_KEY"]))
    else:
        sluice = RealSluice()
        try:
            asyncio.run(main(sluice.url, DEMO_KEY))
        finally:
            sluice.stop()
