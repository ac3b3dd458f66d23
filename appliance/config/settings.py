"""Every setting of headraced, declared once.

The field's name is the key in the file; `--like-this` is its flag and HEADRACED_LIKE_THIS its
variable; the description is its help. Tuples are repeated flags, lists in the file, and separated
by commas in the environment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from appliance.config.endpoint import Endpoint
from appliance.core.sizes import MIB, parse_size

_TREE = Path(__file__).resolve().parents[2]
_BUILD = _TREE / "build" / "release"
_SYSTEM_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|min|h|d)")
_SECONDS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86400}
_DEVICES = r"(?:[1-9]\d?x)?[1-9]\d{0,9}[KMGT]iB"
_SOFTWARE_GPU = re.compile(rf"{_DEVICES}(?:,{_DEVICES})*")


def _split(value: Any) -> Any:
    """Commas separate in the environment, and may in a flag that could be repeated as well."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, (tuple, list)) and all(isinstance(part, str) for part in value):
        return tuple(piece for part in value for piece in _split(part))
    return value


def _endpoint(value: Any) -> Any:
    return Endpoint.parse(value) if isinstance(value, str) else value


def _size(value: Any) -> Any:
    return parse_size(value) if isinstance(value, str) else value


def _duration(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a time; write for example 30s, 10min or 24h")
    return float(match[1]) * _SECONDS[match[2]]


def _software_gpu(value: Any) -> Any:
    # The same form as the software GPU itself reads, so that it never finds no device.
    if isinstance(value, str) and not _SOFTWARE_GPU.fullmatch(value):
        raise ValueError(f"{value!r} is not devices of software; write for example 1x4GiB")
    return value


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Endpoints = Annotated[
    tuple[Annotated[Endpoint, BeforeValidator(_endpoint)], ...], NoDecode, BeforeValidator(_split)
]
Size = Annotated[int, BeforeValidator(_size), Field(ge=0)]
Duration = Annotated[float, BeforeValidator(_duration), Field(gt=0)]


class Settings(BaseSettings):
    """What headraced can be told. Flags win over the environment, the environment over the file."""

    model_config = SettingsConfigDict(
        env_prefix="HEADRACED_", extra="forbid", frozen=True, arbitrary_types_allowed=True
    )

    state: Path = Field(
        default=Path("/var/lib/headrace"),
        description="Folder with the CA, the appliance's identity and its state.",
    )
    listen: Endpoints = Field(
        default=(Endpoint("0.0.0.0", 7444),),
        description="HOST:PORT of the data port; may be repeated. Port 0 lets the system choose.",
    )
    advertise: str | None = Field(
        default=None,
        description="Name or address that clients are told; default: the address listened on, "
        "or the host's name.",
    )
    names: Names = Field(
        default=(),
        description="Further names and addresses under which clients reach this appliance.",
    )
    broker: Path | None = Field(
        default=None,
        description="Unix socket for the workers; default: broker.sock in the state folder.",
    )
    worker: Path = Field(
        default=_BUILD / "bin" / "headrace-worker", description="The worker's program."
    )
    worker_environment: Names = Field(
        default=(),
        description="Variables that workers inherit by name; never LD_* or CUDA_*.",
    )
    driver: Path | None = Field(
        default=None,
        description="The libcuda.so.1 that workers load; default: the system's, or the software "
        "GPU's.",
    )
    nvml: Path | None = Field(
        default=None,
        description="The libnvidia-ml.so.1 for the inventory; default: beside the driver.",
    )
    software_gpu: Annotated[str | None, BeforeValidator(_software_gpu)] = Field(
        default=None,
        description="Lend software GPUs instead of real ones, as in 1x4GiB.",
    )
    software_gpu_libraries: Path = Field(
        default=_BUILD / "lib" / "softgpu", description="Folder with the software GPU's libraries."
    )
    software_gpu_state: Path | None = Field(
        default=None,
        description="Folder (on tmpfs) that makes software GPUs machine-wide: memory that is not "
        "cleared when it is freed, compute shared by all sessions, and faults put in from outside. "
        "Default: every session has devices of its own.",
    )
    software_gpu_compiler: Literal["shared", "own"] = Field(
        default="shared",
        description="The software GPU's compile helper: one shared by all workers and outside "
        "them, or each worker's own, started on demand.",
    )
    software_gpu_sass: Literal["refuse", "skip"] = Field(
        default="refuse",
        description="What the software GPU does with machine code, which it cannot run: refuse it, "
        "or load it and skip its kernels, which then complete without doing anything. The "
        "devices' names say so.",
    )
    context_overhead: Size | None = Field(
        default=None,
        description="Device memory that a CUDA context takes; default: 512MiB on a real GPU, "
        "nothing on a software GPU.",
    )
    reservation_time: Duration = Field(
        default=86400.0, description="Longest life of a reservation.", examples=["24h"]
    )
    max_sessions: int = Field(
        default=64, ge=1, le=4096, description="Processes that one reservation may have attached."
    )
    max_connections: int = Field(
        default=1024, ge=1, le=65536, description="Connections, and so workers, at once."
    )
    max_unauthenticated: int = Field(
        default=64, ge=1, le=65536, description="Connections at once that are not yet trusted."
    )
    max_unauthenticated_per_address: int = Field(
        default=32,
        ge=1,
        le=65536,
        description="Of these from one address, so that one host does not keep all others out.",
    )
    handshake_time: Duration = Field(
        default=10.0,
        description="Time for a TLS handshake, and again for the hello.",
        examples=["10s"],
    )
    idle_time: Duration = Field(
        default=60.0,
        description="Time that a trusted connection may take to reserve or attach.",
        examples=["60s"],
    )
    stop_time: Duration = Field(
        default=5.0,
        description="Time that a worker has to end when told to, before it is killed.",
        examples=["5s"],
    )
    ready_file: Path | None = Field(
        default=None,
        description="File that is written (JSON) once connections are accepted; - is standard "
        "output.",
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="Form of the log on standard error: json or console."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe lines to log: debug, info, warning or error."
    )

    @model_validator(mode="after")
    def _check_worker_environment(self) -> Settings:
        for name in self.worker_environment:
            if name.startswith(("LD_", "CUDA_")):
                raise ValueError(f"worker_environment: {name} would reach the driver's loader")
        return self

    @property
    def broker_path(self) -> Path:
        """Where the workers find the daemon."""
        return self.broker or self.state / "broker.sock"

    @property
    def compiler_path(self) -> Path:
        """Where workers find the shared compile helper."""
        return self.broker_path.with_name("compiler.sock")

    @property
    def softgpu_cache(self) -> Path:
        """Where compiled kernels are kept."""
        return (self.state / "softgpu-cache").absolute()

    @property
    def driver_path(self) -> Path:
        """The driver library that a grant names."""
        if self.driver:
            return self.driver
        folder = self.software_gpu_libraries if self.software_gpu else _SYSTEM_LIBRARIES
        return folder / "libcuda.so.1"

    @property
    def nvml_path(self) -> Path:
        """The management library for the inventory."""
        return self.nvml or self.driver_path.with_name("libnvidia-ml.so.1")

    @property
    def context_overhead_bytes(self) -> int:
        """What a context of one process takes on a device."""
        if self.context_overhead is not None:
            return self.context_overhead
        return 0 if self.software_gpu else 512 * MIB
