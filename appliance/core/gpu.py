"""One GPU of this appliance, and one slice of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from appliance.core.ids import GpuId, SliceUuid


class GpuState(StrEnum):
    """Whether new slices may be placed on a GPU."""

    READY = "ready"
    CORDONED = "cordoned"


@dataclass(frozen=True)
class PciAddress:
    """Where a program believes its GPU to sit."""

    domain: int
    bus: int
    device: int


@dataclass(frozen=True)
class Gpu:
    """A physical device, a MIG instance or a software GPU, as the inventory found it."""

    id: GpuId
    uuid: bytes
    """The 16 bytes by which the driver knows the device."""
    name: str
    memory_bytes: int
    context_overhead_bytes: int
    """Device memory that a CUDA context takes for itself, before the program asks for any."""
    driver: str
    cuda_version: int
    software: bool
    state: GpuState = GpuState.READY
    compute_capability: tuple[int, int] | None = None
    """Major and minor, where the inventory tells."""

    @property
    def largest_slice(self) -> int:
        """What the GPU can give when nothing is on it."""
        return max(0, self.memory_bytes - self.context_overhead_bytes)


@dataclass(frozen=True)
class Slice:
    """A share of one GPU that belongs to one reservation."""

    index: int
    gpu: Gpu
    uuid: SliceUuid
    pci: PciAddress
    memory_bytes: int
    compute_percent: int

    @property
    def footprint(self) -> int:
        """What the slice takes from its GPU: its memory and room for one context."""
        return self.memory_bytes + self.gpu.context_overhead_bytes


def slice_pci(index: int) -> PciAddress:
    """The PCI address of a reservation's slice: its own, and distinct within the reservation."""
    return PciAddress(domain=0, bus=index + 1, device=0)
