"""Telling whoever waits that connections are accepted, and where."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from appliance.config import Endpoint
from security.pki.files import PUBLIC, write_file


def write_ready_file(path: Path, endpoints: Sequence[Endpoint], broker: Path) -> None:
    """The whole file appears at once: who sees it can read it. `-` is a line on standard output."""
    document = {
        "pid": os.getpid(),
        "listen": [str(endpoint) for endpoint in endpoints],
        "broker": os.fspath(broker),
    }
    line = json.dumps(document) + "\n"
    if path == Path("-"):
        sys.stdout.write(line)
        sys.stdout.flush()
    else:
        write_file(path, line.encode(), PUBLIC)
