"""Unmodified programs on the software GPU, without any network."""

from __future__ import annotations

import pytest
from PIL import Image

from docs.tutorial.catalogue import PROGRAMS, Program, Workshop, outcome_of
from tests.e2e.watch import watch

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_program_gets_the_numbers_of_the_cpu(
    program: Program, workshop: Workshop, direct: dict[str, str]
) -> None:
    done = watch(program.arguments(workshop), direct, timeout=240)
    assert done.status == 0, done.output.strip() + done.errors
    outcome = outcome_of(done.output)
    assert outcome.ok
    assert "Software GPU" in outcome.device
    assert {path.parent.name for path in done.mapped_named("libcuda.so")} == {"softgpu"}


def test_the_image_filter_writes_a_picture(workshop: Workshop, direct: dict[str, str]) -> None:
    photo = next(program for program in PROGRAMS if program.name == "photo")
    workshop.picture.unlink(missing_ok=True)
    done = watch(photo.arguments(workshop), direct, timeout=240)
    assert done.status == 0, done.output.strip() + done.errors
    with Image.open(workshop.picture) as picture, Image.open(workshop.photo) as original:
        assert picture.format == "PNG"
        assert picture.size == original.size
        assert picture.tobytes() != original.tobytes()
