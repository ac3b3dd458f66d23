"""The daemon's log: one event a line on standard error, JSON for the journal or text for people.

Names never appear in it: whoever logs an identity logs its pseudonym (security/identity).
"""

from __future__ import annotations

import logging
import sys
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger, Processor


def open_log(
    form: Literal["json", "console"], level: str, stream: TextIO | None = None
) -> FilteringBoundLogger:
    """A logger for the composition root to hand out; there is no global one."""
    stream = stream or sys.stderr
    renderers: list[Processor] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
        if form == "json"
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    )
    logger = structlog.wrap_logger(
        structlog.PrintLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, logger)
