"""Writes the golden vectors as frames, one file each: what the frame fuzzer starts from."""

from __future__ import annotations

import re
import struct
import sys
import tomllib
from pathlib import Path

from remoting.protocol.gen.messages import MESSAGES

ROOT = Path(__file__).resolve().parents[2]
VECTORS = ROOT / "remoting" / "protocol" / "vectors"
IDS = tomllib.loads((ROOT / "remoting" / "apispec" / "ids.toml").read_text())
TYPES = {kind.__name__: number for number, kind in MESSAGES.items()}


def frame_type(name: str) -> int:
    """The type of a vector's frame; a reply has the type of its call."""
    if name in TYPES:
        return TYPES[name]
    symbol = re.sub(r"Reply$", "", name)
    return 0x1000 + int(IDS["cu" + symbol.removeprefix("Cu")])


def main(folder: Path) -> None:
    """Write every vector of both files into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(VECTORS.glob("*.toml")):
        document = tomllib.loads(path.read_text())
        for number, entry in enumerate(document["vector"]):
            payload = bytes.fromhex(entry["hex"])
            header = struct.pack("<IHHII", len(payload), frame_type(entry["message"]), 0, 1, 0)
            (folder / f"{path.stem}-{number}").write_bytes(header + payload)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
