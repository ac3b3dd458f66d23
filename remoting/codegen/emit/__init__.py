"""Emitters: model in, text out. Decisions belong into the passes, wording into the templates."""

from remoting.codegen.emit.coverage import coverage_page
from remoting.codegen.emit.cpp import cpp_files, message_files
from remoting.codegen.emit.python import python_codec

__all__ = ["coverage_page", "cpp_files", "message_files", "python_codec"]
