"""Why the pool says no; the class answers what the caller should do.

PoolError             message and hint for people
├── NotEnough         ask for less, or wait
├── NotFound          list again
├── InvalidRequest    fix the request
├── NotPermitted      ask the administrator, or reserve again
└── Busy              retry later
"""

from __future__ import annotations


class PoolError(Exception):
    """A refusal with a text for people, and the next step where there is one."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class NotEnough(PoolError):
    """The pool has not enough free."""


class NotFound(PoolError):
    """No such GPU, reservation or session."""


class InvalidRequest(PoolError):
    """The request itself is wrong, whatever the state of the pool."""


class NotPermitted(PoolError):
    """This principal may not do that, or may not any more."""


class Busy(PoolError):
    """A limit on how much happens at once."""
