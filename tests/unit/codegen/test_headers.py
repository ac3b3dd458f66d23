"""What is read from the vendor's headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.codegen.errors import SpecError
from remoting.codegen.headers import read_headers
from remoting.codegen.model import CType, Header


def test_all_exported_symbols_of_cuda_13_0_are_found(header: Header) -> None:
    assert len(header.functions) == 637
    assert len(header.bases()) == 540


def test_a_declaration_is_kept_as_the_header_has_it(header: Header) -> None:
    function = header.functions["cuMemcpyHtoDAsync_v2_ptsz"]
    assert (function.base, function.thread_form) == ("cuMemcpyHtoDAsync_v2", "ptsz")
    assert (function.family_name, function.version) == ("cuMemcpyHtoDAsync", 2)
    assert [param.name for param in function.params] == [
        "dstDevice",
        "srcHost",
        "ByteCount",
        "hStream",
    ]
    assert function.params[1].ctype == CType("void", 1, const=True)


def test_result_codes_have_their_numbers(header: Header) -> None:
    codes = dict(header.error_codes)
    assert codes["CUDA_SUCCESS"] == 0
    assert codes["CUDA_ERROR_ILLEGAL_ADDRESS"] == 700


def test_missing_headers_are_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cuda\.h is missing: run 'make setup'"):
        read_headers(tmp_path)
