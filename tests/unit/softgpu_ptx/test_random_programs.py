"""A few random programs each time; `random_programs.py` runs more of them."""

from __future__ import annotations

import pytest

from tests.unit.softgpu_ptx import random_programs


@pytest.mark.parametrize("seed", range(12))
def test_both_ways_agree(seed: int) -> None:
    random_programs.run(seed, (0, 1, 2)[seed % 3])
