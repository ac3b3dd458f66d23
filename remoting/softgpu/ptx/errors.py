"""What can be wrong with PTX text, told by kind, instruction and line.

The driver writes these texts into the JIT error log, so each names the exact form or directive.
"""

from __future__ import annotations

from typing import Literal

ErrorKind = Literal["invalid_ptx", "unsupported_form", "unsupported_version"]


class PtxError(Exception):
    """PTX that cannot be compiled.  ``line`` is 1-based; 0 means the module as a whole."""

    def __init__(self, kind: ErrorKind, message: str, line: int = 0) -> None:
        super().__init__(kind, message, line)
        self.kind: ErrorKind = kind
        self.message = message
        self.line = line

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" if self.line else self.message


class UnsupportedForm(PtxError):
    """A complete instruction form (or feature) that has no entry in the whitelist."""

    def __init__(self, form: str, line: int = 0) -> None:
        super().__init__("unsupported_form", f"instruction form not supported: {form}", line)
        self.form = form


def invalid(message: str, line: int = 0) -> PtxError:
    """An error of kind invalid_ptx."""
    return PtxError("invalid_ptx", message, line)
