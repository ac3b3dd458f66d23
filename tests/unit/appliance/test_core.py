"""Placement, accounts, ids and states of the domain, by example."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.core.account import MemoryAccount
from appliance.core.errors import Busy, InvalidRequest, NotEnough, NotFound, NotPermitted
from appliance.core.gpu import Gpu, GpuState
from appliance.core.ids import GpuId, SessionId, new_reservation_id, slice_uuid
from appliance.core.placement import Demand, Room, place
from appliance.core.pool import MemoryStore, Pool
from appliance.core.reservation import EndReason, Holder, ReservationState
from appliance.core.sizes import GIB, GRANULE, MIB, format_size, parse_size

ALICE = Holder("lab", "alice", "lab-3")
ONE, TWO = SessionId("s-1"), SessionId("s-2")


def gpu(index: int, memory: int, overhead: int = 0, state: GpuState = GpuState.READY) -> Gpu:
    return Gpu(GpuId(f"GPU-{index}"), bytes(16), "Test", memory, overhead, "1", 13000, True, state)


def pool(*gpus: Gpu, max_sessions: int = 8) -> Pool:
    return Pool(
        gpus, MemoryStore(), lambda: 1000.0, reservation_seconds=60, max_sessions=max_sessions
    )


def test_the_tightest_fitting_gpu_is_taken() -> None:
    rooms = [Room(gpu(0, 8 * GIB), 8 * GIB, 0), Room(gpu(1, 8 * GIB), 2 * GIB, 1)]
    assert [p.gpu.id for p in place(Demand(1, GIB), rooms)] == ["GPU-1"]
    assert [p.gpu.id for p in place(Demand(1, 3 * GIB), rooms)] == ["GPU-0"]


def test_slices_of_one_reservation_are_on_different_gpus() -> None:
    rooms = [Room(gpu(i, 8 * GIB), 8 * GIB, 0) for i in range(3)]
    assert len({p.gpu.id for p in place(Demand(3, GIB), rooms)}) == 3
    with pytest.raises(NotEnough) as refused:
        place(Demand(4, GIB), rooms)
    assert "-n" in refused.value.hint


def test_a_whole_gpu_is_one_that_nobody_uses() -> None:
    rooms = [
        Room(gpu(0, 8 * GIB, 512 * MIB), 7 * GIB, 1),
        Room(gpu(1, 8 * GIB, 512 * MIB), 8 * GIB, 0),
    ]
    (spot,) = place(Demand(1, 0), rooms)
    assert spot.gpu.id == "GPU-1"
    assert spot.memory_bytes == 8 * GIB - 512 * MIB
    with pytest.raises(NotEnough, match="1 idle"):
        place(Demand(2, 0), rooms)


def test_a_cordoned_gpu_gets_nothing() -> None:
    with pytest.raises(NotEnough):
        place(Demand(1, GIB), [Room(gpu(0, 8 * GIB, state=GpuState.CORDONED), 8 * GIB, 0)])


def test_a_refusal_says_what_would_fit() -> None:
    rooms = [Room(gpu(0, 8 * GIB), 3 * GIB, 1)]
    with pytest.raises(NotEnough, match="3 GiB free") as refused:
        place(Demand(1, 4 * GIB), rooms)
    assert "3 GiB with -m" in refused.value.hint


@pytest.mark.parametrize(
    "demand",
    [
        Demand(0, 1),
        Demand(65, 1),
        Demand(1, -1),
        Demand(1, 1 << 60),
        Demand(1, 1, 101),
        Demand(1, 1, -1),
    ],
)
def test_nonsense_is_refused_by_field(demand: Demand) -> None:
    with pytest.raises(InvalidRequest):
        place(demand, [])


def test_what_one_frees_another_may_have() -> None:
    lent = pool(gpu(0, 4 * GIB))
    first = lent.reserve(ALICE, Demand(1, 3 * GIB))
    with pytest.raises(NotEnough):
        lent.reserve(ALICE, Demand(1, 2 * GIB))
    assert lent.end(first.id, EndReason.RELEASED) == ()
    assert lent.reserve(ALICE, Demand(1, 4 * GIB))


def test_memory_stays_taken_until_the_last_worker_is_gone() -> None:
    lent = pool(gpu(0, 4 * GIB))
    reservation = lent.reserve(ALICE, Demand(1, 3 * GIB))
    session = ONE
    lent.open_session(reservation.id, session)
    assert lent.end(reservation.id, EndReason.HOLDER_GONE) == (session,)
    assert lent.reservations()[0].state is ReservationState.ENDING
    with pytest.raises(NotPermitted):
        lent.open_session(reservation.id, TWO)
    assert not lent.request_memory(reservation.id, session, 0, GRANULE).granted
    with pytest.raises(NotEnough):
        lent.reserve(ALICE, Demand(1, 2 * GIB))
    lent.close_session(reservation.id, session)
    assert lent.reservations() == ()
    assert lent.reserve(ALICE, Demand(1, 4 * GIB))


def test_sessions_of_a_reservation_are_limited() -> None:
    lent = pool(gpu(0, 4 * GIB), max_sessions=1)
    reservation = lent.reserve(ALICE, Demand(1, GIB))
    lent.open_session(reservation.id, ONE)
    with pytest.raises(Busy):
        lent.open_session(reservation.id, TWO)


def test_a_state_never_goes_back() -> None:
    lent = pool(gpu(0, 4 * GIB))
    reservation = lent.reserve(ALICE, Demand(1, GIB))
    ended = reservation.moved_to(ReservationState.ENDED, EndReason.RELEASED)
    with pytest.raises(ValueError):
        ended.moved_to(ReservationState.HELD)


def test_all_sessions_draw_on_one_account() -> None:
    account = MemoryAccount([10 * MIB], [0])
    account.open_session(ONE)
    account.open_session(TWO)
    assert account.request(ONE, 0, 6 * MIB).granted
    refused = account.request(TWO, 0, 5 * MIB)
    assert (refused.granted, refused.used, refused.limit) == (False, 6 * MIB, 10 * MIB)
    account.close_session(ONE)
    assert account.request(TWO, 0, 10 * MIB).granted


def test_the_second_context_is_paid_from_the_slice() -> None:
    account = MemoryAccount([10 * MIB], [4 * MIB])
    account.open_session(ONE)
    assert account.used(0) == 0
    assert account.request(ONE, 0, 7 * MIB).granted
    with pytest.raises(NotEnough):
        account.open_session(TWO)
    assert account.request(ONE, 0, -MIB).granted
    account.open_session(TWO)
    assert account.used(0) == 10 * MIB


@pytest.mark.parametrize(("device", "delta"), [(0, -1), (1, 1), (-1, 1), (0, -(1 << 63))])
def test_a_worker_that_cannot_count_is_told_so(device: int, delta: int) -> None:
    account = MemoryAccount([10 * MIB], [0])
    account.open_session(ONE)
    with pytest.raises(InvalidRequest):
        account.request(ONE, device, delta)
    with pytest.raises(NotFound):
        account.request(TWO, 0, 1)


def test_a_slices_uuid_is_its_own_and_stable() -> None:
    one, two = new_reservation_id(), new_reservation_id()
    assert slice_uuid(one, 0) == slice_uuid(one, 0)
    assert len({slice_uuid(r, i) for r in (one, two) for i in range(4)}) == 8
    lent = pool(gpu(0, GIB), gpu(1, GIB))
    slices = lent.reserve(ALICE, Demand(2, GIB)).slices
    assert len({s.uuid for s in slices} | {s.gpu.uuid for s in slices}) == 3
    assert len({s.pci for s in slices}) == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * MIB),
        ("8GiB", 8 * GIB),
        ("8G", 8 * GIB),
        ("8g", 8 * GIB),
        ("1.5GiB", 1536 * MIB),
        ("7", 7),
        ("2 GiB", 2 * GIB),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "8GB", "1e9", "1.2.3G", "8 Gi B", "9" * 40])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of memory"):
        parse_size(text)


@given(st.integers(0, 1 << 50))
def test_a_size_that_is_shown_never_exceeds_what_there_is(size: int) -> None:
    shown = format_size(size).removesuffix(" B")
    assert parse_size(shown) <= size
