"""Between the domain and the protocol's messages: grants, lists, refusals."""

from __future__ import annotations

from appliance.broker.policy import GrantPolicy
from appliance.core.errors import (
    Busy,
    InvalidRequest,
    NotEnough,
    NotFound,
    NotPermitted,
    PoolError,
)
from appliance.core.gpu import Slice
from appliance.core.ids import SessionId
from appliance.core.placement import Room
from appliance.core.reservation import Reservation
from remoting.protocol.gen import messages as m
from security.pki import IssuedCertificate

# Codes of Refuse and Close (PROTOCOL.md §9).
FINISHED, PROTOCOL_ERROR, NOT_PERMITTED, INTERNAL, SHUTTING_DOWN = 0, 1, 3, 5, 6

_REFUSE_CODES: dict[type[PoolError], int] = {
    NotPermitted: NOT_PERMITTED,
    Busy: 4,
    NotEnough: 10,
    NotFound: 11,
    InvalidRequest: 12,
}

_MAX_TEXT = 512
_MAX_PROCESSES = 1024


def refuse(error: PoolError) -> m.Refuse:
    """The refusal that says what the error says."""
    return m.Refuse(_REFUSE_CODES[type(error)], clip(error.message), clip(error.hint))


def clip(text: str, limit: int = _MAX_TEXT) -> str:
    """Cut a text to a string field's size in bytes, at a character."""
    return text.encode()[:limit].decode(errors="ignore")


def list_reply(rooms: tuple[Room, ...], server: str) -> m.ListReply:
    """The GPUs as `headrace list` shows them; free is what one slice could have."""
    return m.ListReply(
        gpus=[
            m.Gpu(
                server=server,
                name=clip(room.gpu.name, 128),
                memory_bytes=room.gpu.memory_bytes,
                free_bytes=room.largest_slice,
                reservations=room.slices,
                state=room.gpu.state.value,
                driver=clip(room.gpu.driver, 64),
                cuda_version=room.gpu.cuda_version,
                software=room.gpu.software,
            )
            for room in rooms
        ]
    )


def reserve_grant(
    reservation: Reservation, issued: IssuedCertificate, server: str
) -> m.ReserveGrant:
    """What the launcher gets."""
    return m.ReserveGrant(
        reservation=reservation.id,
        server=server,
        certificate=issued.der,
        chain=issued.chain_der,
        expires=int(issued.expires.timestamp()),
        slices=[
            m.Slice(
                gpu_name=clip(entry.gpu.name, 128),
                slice_uuid=entry.uuid,
                memory_bytes=entry.memory_bytes,
                compute_percent=entry.compute_percent,
                server=server,
                software=entry.gpu.software,
            )
            for entry in reservation.slices
        ],
    )


def status_reply(reservation: Reservation) -> m.StatusReply:
    """What the programs of a reservation may watch of it (PROTOCOL.md §6.2)."""
    account = reservation.account
    first = reservation.slices[0].gpu
    processes = [
        m.SliceProcess(entry.index, process.pid, held, clip(process.program, 256))
        for entry in reservation.slices
        for process, held in account.holders(entry.index)
    ]
    return m.StatusReply(
        reservation=reservation.id,
        driver=clip(first.driver, 64),
        cuda_version=first.cuda_version,
        devices=[
            _slice_state(entry, min(account.used(entry.index), entry.memory_bytes))
            for entry in reservation.slices
        ],
        processes=processes[:_MAX_PROCESSES],
    )


def _slice_state(entry: Slice, used: int) -> m.SliceState:
    major, minor = entry.gpu.compute_capability or (0, 0)
    return m.SliceState(
        slice_uuid=entry.uuid,
        pci_domain=entry.pci.domain,
        pci_bus=entry.pci.bus,
        pci_device=entry.pci.device,
        name=clip(entry.gpu.name, 128),
        memory_bytes=entry.memory_bytes,
        used_bytes=used,
        compute_percent=entry.compute_percent,
        compute_major=major,
        compute_minor=minor,
        software=entry.gpu.software,
    )


def session_grant(
    reservation: Reservation, session: SessionId, policy: GrantPolicy
) -> m.SessionGrant:
    """What a worker needs to serve one process of a reservation."""
    return m.SessionGrant(
        session=session,
        driver_library=policy.driver_library,
        software=policy.software,
        environment=[m.Setting(name, value) for name, value in policy.environment.items()],
        devices=[
            m.GrantedDevice(
                physical_uuid=entry.gpu.uuid,
                slice_uuid=entry.uuid,
                pci_domain=entry.pci.domain,
                pci_bus=entry.pci.bus,
                pci_device=entry.pci.device,
                name=clip(entry.gpu.name, 128),
                memory_bytes=entry.memory_bytes,
                compute_percent=entry.compute_percent,
            )
            for entry in reservation.slices
        ],
    )
