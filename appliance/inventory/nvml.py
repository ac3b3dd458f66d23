"""GPUs through NVML, whose library is named by its absolute path.

By path, because the loader's search could find our own client's libnvidia-ml.so.1 on a machine
that is both appliance and client. The software GPU brings an NVML of its own, named the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from appliance.core.gpu import Gpu
from appliance.core.ids import GpuId

_T = TypeVar("_T")


class InventoryError(Exception):
    """The GPUs cannot be listed; message and hint for people."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NvmlInventory:
    """Lists the devices of one NVML library."""

    def __init__(self, library: Path, *, software: bool, context_overhead_bytes: int) -> None:
        if not library.is_absolute():
            raise InventoryError(f"{library} is not an absolute path")
        self._library = library
        self._software = software
        self._context_overhead_bytes = context_overhead_bytes

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, MIG instances in place of a GPU that is divided into them."""
        with self._nvml():
            try:
                driver = str(pynvml.nvmlSystemGetDriverVersion())
                cuda_version = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
                return tuple(
                    self._gpu(handle, driver, cuda_version)
                    for index in range(pynvml.nvmlDeviceGetCount())
                    for handle in _instances(pynvml.nvmlDeviceGetHandleByIndex(index))
                )
            except pynvml.NVMLError as error:
                raise InventoryError(f"NVML ({self._library}): {error}") from error

    def _gpu(self, handle: Any, driver: str, cuda_version: int) -> Gpu:
        identifier = str(pynvml.nvmlDeviceGetUUID(handle))
        return Gpu(
            id=GpuId(identifier),
            uuid=_uuid_bytes(identifier),
            name=str(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=_usable_memory(handle),
            context_overhead_bytes=self._context_overhead_bytes,
            driver=driver,
            cuda_version=cuda_version,
            software=self._software,
            compute_capability=_if_supported(
                lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            ),
        )

    @contextlib.contextmanager
    def _nvml(self) -> Iterator[None]:
        try:
            _use_library(self._library)
            pynvml.nvmlInit()
        except (OSError, pynvml.NVMLError) as error:
            raise InventoryError(
                f"NVML does not start from {self._library}: {error}",
                hint="name it with --nvml, or lend a software GPU: --software-gpu 1x4GiB",
            ) from error
        try:
            yield
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def _use_library(library: Path) -> None:
    """Give the binding its library; it looks for the bare name only when it has none yet."""
    if pynvml.nvmlLib is None:
        pynvml.nvmlLib = ctypes.CDLL(str(library))
    elif pynvml.nvmlLib._name != str(library):
        raise InventoryError(f"this process uses {pynvml.nvmlLib._name} already, not {library}")


def _instances(handle: Any) -> list[Any]:
    """The device itself, or the MIG instances that it is divided into."""
    mode = _if_supported(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0])
    if mode != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [handle]
    instances = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        # Instances need not be numbered without gaps.
        with contextlib.suppress(pynvml.NVMLError_NotFound):
            instances.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
    return instances


def _usable_memory(handle: Any) -> int:
    """Without what the driver keeps for itself, where NVML tells."""
    second = _if_supported(
        lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    )
    if second is not None:
        return int(second.total - second.reserved)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)


def _if_supported(ask: Callable[[], _T]) -> _T | None:
    try:
        return ask()
    except (
        pynvml.NVMLError_NotSupported,
        pynvml.NVMLError_FunctionNotFound,
        pynvml.NVMLError_InvalidArgument,
    ):
        return None


def _uuid_bytes(identifier: str) -> bytes:
    _, _, digits = identifier.partition("-")
    try:
        return uuid.UUID(digits).bytes
    except ValueError as error:
        raise InventoryError(f"NVML gives a device the UUID {identifier!r}") from error
