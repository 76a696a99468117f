"""The checks that wait for a batch, without the waiting: what both clients share."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from ._breaker import LONGEST, Breaker
from ._memory import Denial, Memory
from ._types import Decision, SluiceError
from ._wire import Question

#: Two requests keep the server busy while an answer travels; further checks wait for a batch.
IN_FLIGHT = 2
#: Including requests that are added while others hang.
MOST_IN_FLIGHT = 16
#: A check that waits so long starts another request, because those in flight hang.
STALL = 1 / 4
MAX_BATCH = 256
#: Half of the server's bound.
MAX_BATCH_BYTES = 512 << 10
#: Bounds the waiting checks of an identity.
MAX_WAITING = 16_384


class Call(Protocol):
    """A check that waits for a batch."""

    question: Question
    since: float  #: the start of its wait
    stalled: bool  #: it was seen to wait for a quarter of the time-out
    kept: bool  #: it is overdue, and waits for an answer to the same check
    sent: bool  #: it waits no more: it is in flight
    answer: Decision | None  #: the server's

    def end(self, result: Decision | SluiceError) -> None: ...

    def ended(self) -> bool: ...


C = TypeVar("C", bound=Call)


class _Group(Generic[C]):
    """The unanswered checks of an identity."""

    def __init__(self) -> None:
        self.waiting: OrderedDict[C, None] = OrderedDict()  # in order of arrival
        self.in_flight = 0
        self.answered = float("-inf")
        self.denial: Denial | None = None  # the last one while others waited


class Queue(Generic[C]):
    """Bounded queues of checks, one for each identity. Identities take turns in batches, so that one user's flood
    delays no other. Threads that share it need a lock."""

    def __init__(self, memory: Memory, breaker: Breaker, timeout: float, now: Callable[[], float]) -> None:
        self.breaker = breaker
        self._memory, self._timeout, self._now = memory, timeout, now
        self._groups: dict[str, _Group[C]] = {}
        self._turns: OrderedDict[str, _Group[C]] = OrderedDict()
        self.flights: list[list[C]] = []
        self.waiting = 0
        self.in_flight = 0
        self.answered = float("-inf")  # the last time that the server answered

    def __len__(self) -> int:
        return self.waiting

    def __iter__(self) -> Iterator[C]:
        for group in list(self._turns.values()):
            yield from list(group.waiting)

    def may_add_request(self) -> bool:
        return self.in_flight < MOST_IN_FLIGHT and not self.breaker.is_open()

    def is_healthy(self) -> bool:
        """Whether the server has answered within the time-out."""
        return self._now() - self.answered < self._timeout

    def _group(self, identity: str) -> _Group[C]:
        return self._groups.setdefault(identity, _Group())

    def add(self, call: C) -> Decision | None:
        """Adds a call. If too many of its identity wait, it returns a denial, because a healthy server would have
        denied the flood; else it raises."""
        group = self._group(call.question.identity)
        if len(group.waiting) >= MAX_WAITING:
            error = SluiceError("unavailable", "Too many of the same check wait already.")
            if not self.is_healthy():
                raise error
            return Decision(False, 429, "too_many_waiting", retry_after=1, source="failure_mode", error=error)
        group.waiting[call] = None
        self._turns.setdefault(call.question.identity, group)
        self.waiting += 1
        return None

    def remove(self, call: C) -> None:
        """Removes a call that still waits, so that nothing is taken for a caller that has left."""
        group = self._groups.get(call.question.identity)
        if group is not None and call in group.waiting:
            del group.waiting[call]
            self.waiting -= 1
            self._forget(call.question.identity, group)

    def _forget(self, identity: str, group: _Group[C]) -> None:
        if not group.waiting:
            self._turns.pop(identity, None)
            if group.in_flight == 0:
                self._groups.pop(identity, None)

    def take(self) -> list[C]:
        """Takes the next batch, one call of each identity in turn."""
        batch: list[C] = []
        size = 0
        while self._turns and len(batch) < MAX_BATCH:
            identity, group = next(iter(self._turns.items()))
            call = next(iter(group.waiting))
            size += len(call.question.body)
            if batch and size > MAX_BATCH_BYTES:
                break
            del group.waiting[call]
            batch.append(call)
            call.sent = True
            group.in_flight += 1
            if group.waiting:
                self._turns.move_to_end(identity)
            else:
                del self._turns[identity]
        self.waiting -= len(batch)
        if batch:
            self.in_flight += 1
            self.flights.append(batch)
        return batch

    def start(self, call: C) -> list[C]:
        """Returns a call that has not waited as a batch."""
        call.sent = True
        self._group(call.question.identity).in_flight += 1
        self.in_flight += 1
        self.flights.append([call])
        return self.flights[-1]

    def landed(self, batch: list[C], is_answered: bool | None) -> None:
        """Records the end of a request, whose denials end the waiting calls that they deny. None says nothing about the
        server."""
        self.in_flight -= 1
        self.flights = [flight for flight in self.flights if flight is not batch]
        if is_answered is not None:
            self.breaker.ended(is_answered)
        if is_answered:
            self.answered = self._now()
        for call in batch:
            identity, answer = call.question.identity, call.answer
            group = self._group(identity)
            group.in_flight -= 1
            if answer is not None:
                group.answered = self._now()
                if not answer.allowed and call.question.cost > 0 and group.waiting:
                    group.denial = Denial(answer, call.question.cost, group.answered)
                    self._end_where(group, lambda other: self._memory.recall(other.question))
            self._forget(identity, group)

    def _end_where(self, group: _Group[C], decide: Callable[[C], Decision | SluiceError | None]) -> None:
        """Ends the waiting calls of a group for which decide has a result."""
        for call in list(group.waiting):
            result = decide(call)
            if result is not None:
                del group.waiting[call]
                self.waiting -= 1
                call.end(result)

    def due(self, with_kept: bool = False) -> float:
        """When the first call is overdue, without those that are kept; infinity if nobody waits."""
        wanted = (
            next((call.since for call in group.waiting if with_kept or not call.kept), float("inf"))
            for group in self._turns.values()
        )
        sent = (
            call.since
            for flight in self.flights
            for call in flight
            if not call.ended() and (with_kept or not call.kept)
        )
        return min(min(wanted, default=float("inf")), min(sent, default=float("inf"))) + self._timeout

    def has_stalled(self) -> bool:
        """Whether another call has waited for a quarter of the time-out."""
        found, now = False, self._now()
        for group in self._turns.values():
            for call in group.waiting:
                if call.stalled:
                    continue
                if now - call.since < STALL * self._timeout:
                    break
                call.stalled = found = True
        return found

    def end_overdue(self, at: float) -> None:
        """Ends the calls that were overdue at a time."""

        def late(call: C) -> Decision | SluiceError | None:
            return self.overdue(call) if at - call.since >= self._timeout else None

        for identity, group in list(self._turns.items()):
            self._end_where(group, late)
            self._forget(identity, group)
        for flight in self.flights:
            for call in flight:
                if not call.ended() and at - call.since >= self._timeout:
                    call.kept = self._waits_on(call)
                    if not call.kept:
                        call.end(SluiceError("timeout", "No answer in time."))

    def overdue(self, call: C) -> Decision | SluiceError | None:
        """Decides an overdue call: by a denial that came while it waited, or not yet, or by a time-out."""
        denial = self._group(call.question.identity).denial
        if not call.sent and denial is not None and denial.at > call.since and call.question.cost >= denial.cost:
            return denial.decided(self._now())
        call.kept = self._waits_on(call)
        return None if call.kept else SluiceError("timeout", "No answer in time.")

    def _waits_on(self, call: C) -> bool:
        """Whether an overdue call waits longer, because the failure mode would let a flood pass: the server answers,
        and the same check is in flight or was just answered."""
        group, now = self._group(call.question.identity), self._now()
        return (
            now - call.since < LONGEST * self._timeout
            and self.is_healthy()
            and (group.in_flight > 0 or now - group.answered < self._timeout)
        )
