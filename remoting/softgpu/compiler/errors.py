"""What a request can fail with.

CompileError
├── TranslatorError   the text cannot be translated (kinds of the translator)
├── LimitExceeded     too much time or memory
├── CompileCrashed    the compile process ended without a result
├── NoSpace           nowhere to write the result
└── UnknownModule     the helper does not hold the module's text: send it again
"""

from __future__ import annotations

from typing import Any


class CompileError(Exception):
    """Base: has a kind that the client maps to a CUresult, and a text for the JIT error log."""

    kind = "internal"

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line

    def to_wire(self) -> dict[str, Any]:
        """Return the error object of a reply."""
        return {"kind": self.kind, "message": self.message, "line": self.line}


class TranslatorError(CompileError):
    """The translator refused the text."""

    def __init__(self, kind: str, message: str, line: int = 0) -> None:
        super().__init__(message, line)
        self.kind = kind


class LimitExceeded(CompileError):
    """A compile ran past its time or memory."""

    kind = "limit"


class CompileCrashed(CompileError):
    """A compile process died; the service and its other clients go on."""


class NoSpace(CompileError):
    """No directory takes the result."""

    kind = "no_space"


class UnknownModule(CompileError):
    """The text of this hash is not held."""

    kind = "unknown_module"
