"""Runs the compile helper with the fake translator in reach, whatever the environment says."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE)]

from remoting.softgpu.compiler.__main__ import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
