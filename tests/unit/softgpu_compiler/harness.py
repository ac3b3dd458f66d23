"""Text for the fake translator, a client of the compile helper, and what a test knows of one."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remoting.softgpu.compiler.wire import Frame, encode

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

KERNEL = """
static void body(sg_warp_env* env) { *(unsigned*)env->params = 1; }
__attribute__((visibility("default"))) const sg_kernel_desc sgk_desc = {
    SG_ABI_VERSION, 0, NAME, body, 0, 0, 8, 0, 0, 0, {0, 0, 0}, 1};
"""


def module(*orders: str, kernels: tuple[str, ...] = ("first", "second")) -> bytes:
    """Text that the fake translator understands; each test's own orders make it unique."""
    lines = ["//fake", *(f"//kernel {name}" for name in kernels), *orders]
    return ("\n".join(lines) + KERNEL).encode()


class Connection:
    """A client connection of a test, without asyncio."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(60)
        self.socket.connect(str(path))

    def send(self, header: dict[str, Any], attachment: bytes = b"") -> None:
        self.socket.sendall(encode(Frame(header, attachment)))

    def receive(self) -> Frame:
        header_bytes, attachment_bytes = struct.unpack("<II", self._exactly(8))
        header = json.loads(self._exactly(header_bytes))
        return Frame(header, self._exactly(attachment_bytes))

    def ask(self, header: dict[str, Any], attachment: bytes = b"") -> Frame:
        self.send(header, attachment)
        return self.receive()

    def compile(self, text: bytes, kernel: str = "first") -> dict[str, Any]:
        """Inspect and compile, as the C++ client does."""
        inspected = self.ask({"op": "inspect"}, text).header
        if not inspected["ok"]:
            return inspected
        request = {"op": "compile", "module": inspected["module"]["hash"], "kernel": kernel}
        return self.ask(request | {"opt": None}).header

    def at_end(self) -> bool:
        """Whether the helper closed the connection; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise EOFError("the helper closed the connection")
            data += chunk
        return data


@dataclass
class Helper:
    """A running helper."""

    process: subprocess.Popen[bytes]
    path: Path
    cache: Path
    log: Path
    stack: ExitStack

    def connect(self) -> Connection:
        connection = Connection(self.path)
        self.stack.callback(connection.close)
        return connection

    def entries(self, suffix: str) -> list[Path]:
        return sorted(self.cache.glob(f"??/*{suffix}"))


StartHelper = Callable[..., Helper]
