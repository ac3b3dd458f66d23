"""The pool under any sequence of events: nothing is promised twice, and every grant ends."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from appliance.core.errors import Busy, InvalidRequest, NotEnough, NotFound, NotPermitted
from appliance.core.gpu import Gpu, Slice
from appliance.core.ids import GpuId, ReservationId, SessionId, new_session_id
from appliance.core.placement import Demand
from appliance.core.pool import MemoryStore, Pool
from appliance.core.reservation import EndReason, Holder
from appliance.core.sizes import GRANULE

Attached = tuple[ReservationId, SessionId]

HOLDER = Holder("client", "user", "host")
sizes = st.integers(0, 6) | st.integers(1, 40).map(lambda n: n * GRANULE)


class PoolMachine(RuleBasedStateMachine):
    """Random reservations, sessions, allocations and ends against a small pool."""

    reservations: Bundle[ReservationId] = Bundle("reservations")
    sessions: Bundle[Attached] = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        # What the model believes: bytes that each open session holds per slice.
        self.held: dict[tuple[ReservationId, SessionId], list[int]] = {}
        self.granted: dict[ReservationId, dict[str, int]] = {}
        self.ending: set[ReservationId] = set()

    @initialize(
        memories=st.lists(st.integers(4, 64), min_size=1, max_size=4),
        overhead=st.integers(0, 3),
    )
    def start(self, memories: list[int], overhead: int) -> None:
        self.gpus = {
            gpu.id: gpu
            for gpu in (
                make_gpu(i, n * GRANULE, overhead * GRANULE) for i, n in enumerate(memories)
            )
        }
        self.pool = Pool(
            tuple(self.gpus.values()),
            MemoryStore(),
            lambda: 0.0,
            reservation_seconds=60,
            max_sessions=4,
        )

    @rule(target=reservations, count=st.integers(1, 3), memory=sizes)
    def reserve(self, count: int, memory: int) -> MultipleResults[ReservationId] | ReservationId:
        largest = sorted((room.largest_slice for room in self.pool.rooms()), reverse=True)
        try:
            reservation = self.pool.reserve(HOLDER, Demand(count, memory))
        except NotEnough:
            if memory:  # a refusal is right: not that many GPUs have that much
                assert sum(free >= memory for free in largest) < count or any(
                    free < -(-memory // GRANULE) * GRANULE for free in largest
                )
            return multiple()
        assert len({s.gpu.id for s in reservation.slices}) == count
        assert all(s.memory_bytes >= memory for s in reservation.slices)
        self.granted[reservation.id] = {
            s.gpu.id: s.memory_bytes + s.gpu.context_overhead_bytes for s in reservation.slices
        }
        return reservation.id

    @rule(target=sessions, reservation=reservations)
    def attach(self, reservation: ReservationId) -> MultipleResults[Attached] | Attached:
        alive = reservation in self.granted and reservation not in self.ending
        try:
            session = new_session_id()
            found = self.pool.open_session(reservation, session)
        except NotPermitted:
            assert not alive
            return multiple()
        except (NotEnough, Busy):
            assert alive
            return multiple()
        assert alive
        self.held[reservation, session] = [0] * len(found.slices)
        return reservation, session

    @rule(
        who=sessions,
        device=st.integers(-1, 3),
        delta=st.integers(-20, 40).map(lambda n: n * GRANULE),
    )
    def request(self, who: Attached, device: int, delta: int) -> None:
        share = self.held.get(who)
        try:
            answer = self.pool.request_memory(*who, device, delta)
        except NotFound:
            assert share is None
            return
        except InvalidRequest:
            assert share is not None
            assert not 0 <= device < len(share) or share[device] + delta < 0
            return
        assert share is not None
        if answer.granted:
            share[device] += delta
        assert answer.used <= answer.limit
        assert delta > 0 or answer.granted

    @rule(who=consumes(sessions))
    def detach(self, who: Attached) -> None:
        self.pool.close_session(*who)
        self.held.pop(who, None)
        self.forget_if_over(who[0])

    @rule(reservation=reservations)
    def end(self, reservation: ReservationId) -> None:
        told = self.pool.end(reservation, EndReason.RELEASED)
        if reservation in self.granted and reservation not in self.ending:
            assert set(told) == {s for r, s in self.held if r == reservation}
            self.ending.add(reservation)
            self.forget_if_over(reservation)
        else:
            assert told == ()

    def forget_if_over(self, reservation: ReservationId) -> None:
        if reservation in self.ending and not any(r == reservation for r, _ in self.held):
            self.granted.pop(reservation, None)

    @invariant()
    def nothing_is_promised_twice(self) -> None:
        if not hasattr(self, "pool"):
            return
        for room in self.pool.rooms():
            promised = sum(slices.get(room.gpu.id, 0) for slices in self.granted.values())
            assert promised <= room.gpu.memory_bytes
            assert room.free_bytes == room.gpu.memory_bytes - promised

    @invariant()
    def no_gpu_holds_more_than_it_has(self) -> None:
        """Allocations and all contexts together fit into each GPU."""
        if not hasattr(self, "pool"):
            return
        taken = dict.fromkeys(self.gpus, 0)
        for reservation in self.pool.reservations():
            for entry in reservation.slices:
                shares = [s for (r, _), s in self.held.items() if r == reservation.id]
                taken[entry.gpu.id] += sum(share[entry.index] for share in shares)
                taken[entry.gpu.id] += len(shares) * entry.gpu.context_overhead_bytes
        for gpu, bytes_taken in taken.items():
            assert bytes_taken <= self.gpus[gpu].memory_bytes

    def teardown(self) -> None:
        """Every grant ends: after all holders and workers are gone, everything is free."""
        if not hasattr(self, "pool"):
            return
        for reservation in list(self.granted):
            self.pool.end(reservation, EndReason.HOLDER_GONE)
        for who in list(self.held):
            self.pool.close_session(*who)
        assert self.pool.reservations() == ()
        assert all(room.free_bytes == room.gpu.memory_bytes for room in self.pool.rooms())


TestPool = PoolMachine.TestCase
TestPool.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, print_blob=False
)


def make_gpu(index: int, memory: int, overhead: int) -> Gpu:
    return Gpu(
        id=GpuId(f"GPU-{index}"),
        uuid=bytes([index]) * 16,
        name="Test GPU",
        memory_bytes=memory,
        context_overhead_bytes=overhead,
        driver="1",
        cuda_version=13000,
        software=True,
    )


def test_the_model_would_notice_an_over_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invariants are not vacuous: a pool that forgets the contexts' memory fails."""
    monkeypatch.setattr(Slice, "footprint", property(lambda entry: entry.memory_bytes))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            PoolMachine, settings=settings(TestPool.settings, phases=[Phase.generate])
        )
