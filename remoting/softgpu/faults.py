"""Puts faults into machine-wide software GPUs, and shows their state, from outside.

    python -m remoting.softgpu.faults --state FOLDER ecc

FOLDER is the HEADRACE_SOFTGPU_STATE of the processes that are meant; all of them, and NVML, see the
fault at once. The layout is FaultBlock of device/condition.h.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

_MAGIC = 0x31444E4F43524748
_ALL = 0xFFFFFFFF
_MIN_SIZE = 512
_XIDS_KEPT = 16
_XIDS_OFFSET = 56
_FIELDS = {
    # name: (offset, format)
    "magic": (0, "<Q"),
    "failures": (8, "<I"),
    "error": (12, "<I"),
    "refused_allocations": (16, "<I"),
    "hung_launches": (20, "<I"),
    "releases": (24, "<I"),
    "lost": (28, "<I"),
    "xid_count": (32, "<I"),
    "ecc_corrected": (40, "<Q"),
    "ecc_uncorrected": (48, "<Q"),
}

ILLEGAL_ADDRESS, ECC_UNCORRECTABLE, LAUNCH_FAILED = 700, 214, 719
XID_CONSEQUENCES = {
    13: LAUNCH_FAILED,  # graphics engine exception
    31: ILLEGAL_ADDRESS,  # memory page fault
    43: LAUNCH_FAILED,  # GPU stopped processing
    45: LAUNCH_FAILED,  # preemptive cleanup
    48: ECC_UNCORRECTABLE,  # double-bit ECC error
    79: LAUNCH_FAILED,  # fallen off the bus
    94: ECC_UNCORRECTABLE,  # contained ECC error
    95: ECC_UNCORRECTABLE,  # uncontained ECC error
    119: LAUNCH_FAILED,  # GSP timeout
}
"""What contexts answer after an event; others are told and harm nobody."""
_FALLEN_OFF_THE_BUS = 79
_DOUBLE_BIT_ERROR = 48


class Faults:
    """One device's words, mapped. Each is read and written whole, as the libraries do."""

    def __init__(self, state: Path, device: int) -> None:
        self._path = state / f"device-{device}.condition"

    @contextmanager
    def open(self) -> Iterator[Faults]:
        """Map the file, and make it when no library has yet."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_size < _MIN_SIZE:
                os.ftruncate(descriptor, _MIN_SIZE)
            with mmap.mmap(descriptor, _MIN_SIZE) as self._map:
                if self["magic"] == 0:
                    self["magic"] = _MAGIC
                if self["magic"] != _MAGIC:
                    raise click.ClickException(f"{self._path} is of another version")
                yield self
        finally:
            os.close(descriptor)

    def __getitem__(self, name: str) -> int:
        offset, form = _FIELDS[name]
        return int(struct.unpack_from(form, self._map, offset)[0])

    def __setitem__(self, name: str, value: int) -> None:
        offset, form = _FIELDS[name]
        struct.pack_into(form, self._map, offset, value)

    def fail(self, error: int) -> None:
        """Destroy the device's contexts."""
        self["error"] = error
        self["failures"] = (self["failures"] + 1) & _ALL

    def tell(self, code: int) -> None:
        """Add an Xid event; the count goes last."""
        number = self["xid_count"]
        place = _XIDS_OFFSET + number % _XIDS_KEPT * 16
        struct.pack_into("<IIQ", self._map, place, code, 0, int(time.time()))
        self["xid_count"] = number + 1

    def xids(self) -> list[int]:
        """Codes of the events that are kept, oldest first."""
        count = self["xid_count"]
        return [
            int(struct.unpack_from("<I", self._map, _XIDS_OFFSET + number % _XIDS_KEPT * 16)[0])
            for number in range(max(0, count - _XIDS_KEPT), count)
        ]


def _count(value: str) -> int:
    if value == "all":
        return _ALL
    if value.isascii() and value.isdigit() and 0 < int(value) < _ALL:
        return int(value)
    raise click.BadParameter(f"{value!r} is neither a number nor all")


def _counted(_: click.Context, __: click.Parameter, value: str) -> int:
    return _count(value)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--state",
    required=True,
    envvar="HEADRACE_SOFTGPU_STATE",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the devices; default: HEADRACE_SOFTGPU_STATE.",
)
@click.option("--device", default=0, type=click.IntRange(0, 63), help="Index of the device (0).")
@click.pass_context
def main(context: click.Context, state: Path, device: int) -> None:
    """Put faults into software GPUs that share a state folder."""
    context.obj = Faults(state, device)


def _command(*options: Callable[[Any], Any], name: str) -> Callable[[Callable[..., None]], None]:
    """A subcommand that gets the device's words, open."""

    def add(body: Callable[..., None]) -> None:
        @click.pass_obj
        def run(faults: Faults, /, **given: Any) -> None:
            with faults.open() as opened:
                body(opened, **given)

        run.__doc__ = body.__doc__
        command = main.command(name)(run)
        for option in options:
            option(command)

    return add


@_command(click.argument("count", default="all", callback=_counted), name="oom")
def _oom(faults: Faults, count: int) -> None:
    """The next COUNT allocations (all, until cleared) fail as if there were no memory."""
    faults["refused_allocations"] = count


@_command(click.argument("count", default="1", callback=_counted), name="hang")
def _hang(faults: Faults, count: int) -> None:
    """The next COUNT launches (1; or all) never end, until cleared or their process ends."""
    faults["hung_launches"] = count


@_command(
    click.option("--corrected", is_flag=True, help="An error that was put right."), name="ecc"
)
def _ecc(faults: Faults, corrected: bool) -> None:
    """An ECC error of the memory; one that is not corrected destroys the device's contexts."""
    if corrected:
        faults["ecc_corrected"] += 1
        return
    faults["ecc_uncorrected"] += 1
    faults.tell(_DOUBLE_BIT_ERROR)
    faults.fail(ECC_UNCORRECTABLE)


@_command(click.argument("code", type=click.IntRange(1, 999)), name="xid")
def _xid(faults: Faults, code: int) -> None:
    """The event Xid CODE, with what it does to contexts; 79 takes the device off the bus."""
    if code == _FALLEN_OFF_THE_BUS:
        faults["lost"] = 1
    faults.tell(code)
    if code in XID_CONSEQUENCES:
        faults.fail(XID_CONSEQUENCES[code])


@_command(name="clear")
def _clear(faults: Faults) -> None:
    """End what goes on: allocations work, hung kernels run on, a lost device is back.

    Counters stay, and contexts that were destroyed stay so.
    """
    for name in ("refused_allocations", "hung_launches", "lost"):
        faults[name] = 0
    faults["releases"] = (faults["releases"] + 1) & _ALL


@_command(name="show")
def _show(faults: Faults) -> None:
    """Print the state."""
    for name in _FIELDS:
        if name not in ("magic", "releases"):
            value = faults[name]
            click.echo(f"{name}: {'all' if value == _ALL else value}")
    click.echo(f"xids: {' '.join(str(code) for code in faults.xids())}")


if __name__ == "__main__":
    sys.exit(main())
