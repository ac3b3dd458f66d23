"""What the fuzzers start from: `seeds.py FOLDER IMAGES` fills FOLDER/<target> for each of them.

Committed corpora (what earlier runs found, minimised) are copied; to them come the golden vectors,
empty and zero payloads of every type, so that no decoder is left out, and the images that the build
made with NVIDIA's compiler.
"""

from __future__ import annotations

import re
import shutil
import struct
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from remoting.protocol.gen.messages import MESSAGES

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
VECTORS = ROOT / "remoting" / "protocol" / "vectors"
IDS = tomllib.loads((ROOT / "remoting" / "apispec" / "ids.toml").read_text())
TYPES = {kind.__name__: number for number, kind in MESSAGES.items()}
IMAGE_TARGETS = ("fuzz_images", "fuzz_uploads", "fuzz_fatbin", "fuzz_cubin", "fuzz_ptx_entries")
ZEROS = (0, 4, 8, 16, 24, 32, 64, 200)


def frame_type(name: str) -> int:
    """The type of a vector's frame; a reply has the type of its call."""
    if name in TYPES:
        return TYPES[name]
    symbol = re.sub(r"Reply$", "", name)
    return 0x1000 + int(IDS["cu" + symbol.removeprefix("Cu")])


def payloads() -> Iterator[tuple[str, int, bool, bytes]]:
    """Name, type on the wire, whether it is a reply, payload."""
    for path in sorted(VECTORS.glob("*.toml")):
        document = tomllib.loads(path.read_text())
        for number, entry in enumerate(document["vector"]):
            message = entry["message"]
            reply = message not in TYPES and message.endswith("Reply")
            payload = bytes.fromhex(entry["hex"])
            yield f"{path.stem}-{number}", frame_type(message), reply, payload
    calls = [0x1000 + int(number) for number in IDS.values() if isinstance(number, int)]
    for number in [*TYPES.values(), *calls]:
        for size in ZEROS:
            for reply in (False, True) if number >= 0x1000 else (False,):
                yield f"zero-{number:04x}-{int(reply)}-{size}", number, reply, bytes(size)


def main(folder: Path, images: Path) -> None:
    """Write all seeds."""
    for each in CORPUS.iterdir():
        if each.is_dir():
            shutil.copytree(each, folder / each.name, dirs_exist_ok=True)
        else:
            with zipfile.ZipFile(each) as archive:
                archive.extractall(folder / each.stem)
    others = ("fuzz_frames", "fuzz_decoders", "fuzz_texts", "fuzz_session", "fuzz_host_lines")
    for target in (*IMAGE_TARGETS, *others):
        (folder / target).mkdir(parents=True, exist_ok=True)
    for name, number, reply, payload in payloads():
        header = struct.pack("<IHHII", len(payload), number, int(reply), 1, 0)
        (folder / "fuzz_frames" / name).write_bytes(header + payload)
        if not reply:
            (folder / "fuzz_session" / name).write_bytes(header + payload)
        prefix = struct.pack("<HB", number, reply)
        (folder / "fuzz_decoders" / name).write_bytes(prefix + payload)
    for count in (1, 3, 64):
        lines = b"".join(struct.pack("<Q", 1 << bit) + b"x" for bit in range(count))
        run = struct.pack("<BHII", 0, 8999, 1, count) + lines
        (folder / "fuzz_host_lines" / f"lines-{count}").write_bytes(run)
    for target in IMAGE_TARGETS:
        for image in [*images.iterdir(), *(CORPUS / "fuzz_images").iterdir()]:
            shutil.copy(image, folder / target / image.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
