"""The helper's command: ``python -m remoting.softgpu.compiler``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from remoting.softgpu.compiler.cache import Cache, default_directory
from remoting.softgpu.compiler.children import Limits
from remoting.softgpu.compiler.library import QUICK_FROM, Library, LibrarySettings
from remoting.softgpu.compiler.service import Lifetime, Service
from remoting.softgpu.compiler.translator import DEFAULT_TRANSLATOR, Translator

ARCHIVE = Path(__file__).parents[3] / "build/release/lib/softgpu/libsoftgpu_device.a"
"""Where a developer's build puts the device helpers."""


def main() -> int:
    """Run the helper until it is no longer needed."""
    options = _parser().parse_args()
    if options.log is not None:
        descriptor = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 2)  # children report there too
        os.close(descriptor)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s softgpu-compiler[%(process)d] %(message)s"
    )
    if options.device_archive is not None and not options.device_archive.is_file():
        print(
            f"no device helpers at {options.device_archive}: build them with 'make build', or name "
            "the file with --device-archive",
            file=sys.stderr,
        )
        return 2
    return asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> int:
    listener, path = _listener(options)
    cache = Cache(options.cache or default_directory(), options.cache_size << 20)
    limits = Limits(
        cpu_seconds=options.cpu_limit,
        # A busy machine may give little of its time; the limit is for work that only waits.
        wall_seconds=max(60.0, 2.5 * options.cpu_limit),
        memory_bytes=options.memory_limit << 20,
    )
    settings = LibrarySettings(options.device_archive, limits, quick_from=options.quick_from)
    library = Library(Translator(options.translator), cache, settings)
    lifetime = Lifetime(keep=options.keep, socket_path=path, lock_path=options.lock)
    service = Service(listener, library, lifetime)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, service.stop)
    try:
        await service.run()
    finally:
        cache.close()
        if options.listen_fd is None and path is not None:
            path.unlink(missing_ok=True)
    return 0


def _listener(options: argparse.Namespace) -> tuple[socket.socket, Path | None]:
    if options.listen_fd is not None:
        listener = socket.socket(fileno=options.listen_fd)
        listener.setblocking(False)
        os.set_inheritable(options.listen_fd, False)
        name = listener.getsockname()
        return listener, Path(name) if isinstance(name, str) and name else None
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    options.socket.unlink(missing_ok=True)
    before = os.umask(0o777 & ~int(options.socket_mode, 8))
    listener.bind(str(options.socket))
    os.umask(before)
    listener.listen(128)
    return listener, options.socket


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m remoting.softgpu.compiler",
        description="Compiles kernels of PTX modules for the software GPU.",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--socket", type=Path, help="Unix socket to make and serve")
    where.add_argument("--listen-fd", type=int, help="descriptor of a socket that listens already")
    parser.add_argument("--socket-mode", default="600", help="its mode, octal (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="stay when the last client is gone")
    parser.add_argument("--lock", type=Path, help="lock file that clients hold while connecting")
    parser.add_argument("--cache", type=Path, help="cache directory (the user's cache)")
    parser.add_argument("--cache-size", type=int, default=1024, help="MiB (%(default)s)")
    parser.add_argument("--cpu-limit", type=int, default=120, help="s a compile (%(default)s)")
    parser.add_argument("--memory-limit", type=int, default=4096, help="MiB (%(default)s)")
    parser.add_argument(
        "--device-archive", type=Path, default=ARCHIVE, help="libsoftgpu_device.a (%(default)s)"
    )
    parser.add_argument(
        "--quick-from",
        type=int,
        default=QUICK_FROM,
        help="characters of PTX from which a kernel is compiled quickly first (%(default)s)",
    )
    parser.add_argument("--translator", default=DEFAULT_TRANSLATOR, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help="append messages to this file (standard error)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
