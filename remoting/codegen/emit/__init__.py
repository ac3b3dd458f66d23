"""Emitters: model in, text out. Decisions belong into the passes, wording into the templates."""

from remoting.codegen.emit.coverage import coverage_page
from remoting.codegen.emit.cpp import cpp_files, message_files, type_list
from remoting.codegen.emit.python import python_codec
from remoting.codegen.emit.vectors import vector_file

__all__ = [
    "coverage_page",
    "cpp_files",
    "message_files",
    "python_codec",
    "type_list",
    "vector_file",
]
