"""The headers are parsed once for all tests here."""

from __future__ import annotations

import pytest

from remoting.codegen.cli import APISPEC, default_include
from remoting.codegen.headers import read_headers
from remoting.codegen.model import Api, Header
from remoting.codegen.passes import build_api
from remoting.codegen.spec import Spec, read_spec


@pytest.fixture(scope="session")
def header() -> Header:
    return read_headers(default_include().resolve())


@pytest.fixture(scope="session")
def spec() -> Spec:
    return read_spec(APISPEC)


@pytest.fixture(scope="session")
def api(header: Header, spec: Spec) -> Api:
    return build_api(header, spec)
