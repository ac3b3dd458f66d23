"""What can be wrong with the input of the generator."""

from __future__ import annotations


class SpecError(Exception):
    """One or more faults in a specification, each a line that names file, row and remedy."""

    def __init__(self, faults: list[str]) -> None:
        """Keep all faults: a run reports everything that it found, not the first only."""
        super().__init__("\n".join(faults))
        self.faults = faults
