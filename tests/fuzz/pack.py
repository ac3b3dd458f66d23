"""Packs a folder of small inputs into one file that is the same for the same content.

`pack.py FOLDER FILE.zip`. Names are the contents' digests, so runs that find the same thing twice
change nothing.
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def main(folder: Path, file: Path) -> None:
    """Write the archive."""
    contents = {hashlib.sha1(data).hexdigest()[:16]: data for data in _contents(folder)}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            archive.writestr(entry, contents[name], zipfile.ZIP_DEFLATED, 9)
    print(f"{file}: {len(contents)} inputs, {file.stat().st_size} bytes")


def _contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.iterdir() if path.is_file()]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
