"""pytest plugin: what numba-cuda's tests find in the conftest.py of its repository, not the wheel."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="class")
def initialize_from_pytest_config(request: pytest.FixtureRequest) -> None:
    """Files of failed FileCheck comparisons are not kept."""
    request.cls._dump_failed_filechecks = False
