"""A worker for tests of the spawner and the daemon: obeys one line of text from its connection.

It keeps the contract of the real one (descriptor 3, HEADRACE_BROKER) and misbehaves on request.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading


def main() -> int:
    """Read one line of the form `command rest` and do it."""
    connection = socket.socket(fileno=3)
    command, _, rest = read_line(connection).partition(" ")
    match command:
        case "describe":
            answer = {
                "environment": dict(os.environ),
                "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
                "session": os.getsid(0) == os.getpid(),
                "blocking": os.get_blocking(3),
            }
            connection.sendall(json.dumps(answer).encode() + b"\n")
        case "exit":
            code, _, words = rest.partition(" ")
            sys.stderr.write(words + "\n")
            return int(code)
        case "flood":
            for _ in range(200):
                sys.stderr.write("x" * 10_000 + "\n")
            sys.stderr.write("the last line\n")
            return 4
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "stubborn":
            # Ignores requests to end, and has a child that does, too.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            child = subprocess.Popen(["/bin/sleep", "1000"])
            connection.sendall(f"{os.getpid()} {child.pid}\n".encode())
            signal.pause()
        case "relay":
            relay(connection)
            if rest == "stubborn":
                signal.pause()
    return 0


def read_line(connection: socket.socket) -> str:
    """The first line, byte by byte so that nothing after it is taken."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line.decode().strip()


def relay(connection: socket.socket) -> None:
    """Join the connection and the broker's socket, so that a test speaks as this worker."""
    broker = socket.socket(socket.AF_UNIX)
    broker.connect(os.environ["HEADRACE_BROKER"])

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=copy, args=(broker, connection))
    back.start()
    copy(connection, broker)
    back.join()
    broker.close()


if __name__ == "__main__":
    sys.exit(main())
