"""Rows and symbols joined: parity, inference, versions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from remoting.codegen.errors import SpecError
from remoting.codegen.model import Api, CallClass, Function, Header, ProcTypedef, Role, Row
from remoting.codegen.passes import build_api, pair_procs
from remoting.codegen.spec import Spec


def function(api: Api, name: str) -> Function:
    return next(f for f in api.functions if f.row.name == name)


def changed(spec: Spec, name: str, **values: Any) -> Spec:
    row = dataclasses.replace(spec.rows[name], **values)
    return dataclasses.replace(spec, rows=spec.rows | {name: row})


def faults(header: Header, spec: Spec) -> str:
    with pytest.raises(SpecError) as caught:
        build_api(header, spec)
    return str(caught.value)


def test_a_function_without_a_row_is_an_error(header: Header, spec: Spec) -> None:
    rows = {name: row for name, row in spec.rows.items() if name != "cuMemAlloc_v2"}
    text = faults(header, dataclasses.replace(spec, rows=rows))
    assert "cuMemAlloc_v2 is in cuda.h and has no row" in text


def test_a_row_without_a_function_is_an_error(header: Header, spec: Spec) -> None:
    row = Row(name="cuMemAlloc_v3", family="memory", call_class=CallClass.LOCAL)
    text = faults(header, dataclasses.replace(spec, rows=spec.rows | {row.name: row}))
    assert "memory.toml: [cuMemAlloc_v3] is no function of cuda.h (did you mean" in text


def test_a_carried_row_without_an_id_is_an_error(header: Header, spec: Spec) -> None:
    ids = {name: number for name, number in spec.ids.items() if name != "cuLaunchKernel"}
    text = faults(header, dataclasses.replace(spec, ids=ids))
    free = max(spec.ids.values()) + 1
    assert f"cuLaunchKernel has no wire id: append one ({free} is free) to ids.toml" in text


def test_a_pointer_that_says_nothing_must_be_explained(header: Header, spec: Spec) -> None:
    row = spec.rows["cuLaunchKernel"]
    params = {name: p for name, p in row.params.items() if name != "extra"}
    text = faults(header, changed(spec, "cuLaunchKernel", params=params))
    assert "[cuLaunchKernel] void** extra: say what is behind this pointer" in text


def test_a_new_handle_must_be_declared(header: Header, spec: Spec) -> None:
    text = faults(header, changed(spec, "cuEventCreate", params={}))
    assert 'say ownership = "create"' in text


def test_only_a_custom_client_can_make_handles(header: Header, spec: Spec) -> None:
    text = faults(header, changed(spec, "cuEventCreate", client="generated"))
    assert "only a custom client body can make a handle" in text


def test_a_sent_call_has_no_out_fields(header: Header, spec: Spec) -> None:
    text = faults(header, changed(spec, "cuMemGetInfo_v2", call_class=CallClass.SEND))
    assert "has out fields, so it cannot be of class send" in text


def test_fields_of_ones_own_need_custom_bodies(header: Header, spec: Spec) -> None:
    text = faults(header, changed(spec, "cuStreamQuery", reply=(("more", "u32"),)))
    assert "both bodies must be custom" in text


def test_via_must_name_a_function_that_is_not_refused(header: Header, spec: Spec) -> None:
    assert "name a function that is not" in faults(
        header, changed(spec, "cuCtxDestroy", via="cuMemAlloc")
    )


def test_via_needs_the_same_parameters_or_one_stream_less(header: Header, spec: Spec) -> None:
    text = faults(header, changed(spec, "cuCtxDestroy", via="cuMemAlloc_v2"))
    assert "cuMemAlloc_v2 takes other parameters" in text


def test_a_parameter_that_is_not_there_is_named(header: Header, spec: Spec) -> None:
    params = {"phStreem": spec.rows["cuStreamCreate"].params["phStream"]}
    text = faults(header, changed(spec, "cuStreamCreate", params=params))
    assert "has no parameter 'phStreem' (did you mean 'phStream'?)" in text


def test_roles_are_inferred_from_types(api: Api) -> None:
    roles = {p.c.name: p.role for p in function(api, "cuMemsetD8Async").params}
    assert roles == {
        "dstDevice": Role.VALUE,
        "uc": Role.VALUE,
        "N": Role.VALUE,
        "hStream": Role.HANDLE,
    }
    assert [p.role for p in function(api, "cuKernelGetAttribute").params] == [
        Role.OUT,
        Role.VALUE,
        Role.HANDLE,
        Role.DEVICE,
    ]


def test_symbols_and_typedefs_pair_completely(api: Api) -> None:
    assert len(api.procs) == len(api.header.functions)
    rows = {(p.name, p.version, p.per_thread): p.symbol for p in api.procs}
    assert rows["cuMemcpyHtoD", 2000, False] == "cuMemcpyHtoD"
    assert rows["cuMemcpyHtoD", 3020, False] == "cuMemcpyHtoD_v2"
    assert rows["cuMemcpyHtoD", 7000, True] == "cuMemcpyHtoD_v2_ptds"
    assert rows["cuCtxCreate", 12050, False] == "cuCtxCreate_v4"
    assert rows["cuGetProcAddress", 12000, False] == "cuGetProcAddress_v2"


def test_a_typedef_without_a_symbol_is_an_error(header: Header) -> None:
    extra = ProcTypedef("cuInit", 99000, "", 1)
    found: list[str] = []
    pair_procs(dataclasses.replace(header, proc_typedefs=(*header.proc_typedefs, extra)), found)
    assert "cuInit" in found[0]


def test_everything_that_programs_were_seen_to_call_has_an_answer(api: Api) -> None:
    """Only graphs, virtual memory, tensor maps and the driver's log may be refused so far."""
    seen = """cuCtxGetCurrent cuCtxGetDevice cuCtxGetDevice_v2 cuCtxGetLimit cuCtxSynchronize
    cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSetCurrent cuDeviceGetAttribute cuDeviceGetUuid_v2
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxReset cuDeviceTotalMem_v2 cuEventElapsedTime_v2
    cuEventRecordWithFlags cuFuncGetAttribute cuFuncGetParamInfo cuFuncSetAttribute
    cuFuncSetCacheConfig cuGetExportTable cuGetProcAddress_v2 cuKernelGetFunction cuLaunchHostFunc
    cuLaunchKernel cuLaunchKernelEx cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetModule
    cuLibraryLoadData cuLibraryUnload cuMemAlloc_v2 cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2
    cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyHtoD_v2
    cuMemsetD32Async cuMemsetD8_v2 cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleLoad
    cuModuleLoadData cuModuleLoadFatBinary cuModuleUnload cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxActiveClusters cuPointerGetAttributes cuStreamCreateWithPriority
    cuStreamGetCaptureInfo_v3 cuStreamGetGreenCtx cuStreamIsCapturing cuStreamQuery
    cuStreamSynchronize cuStreamWaitEvent cuThreadExchangeStreamCaptureMode"""
    refused = {f.row.name for f in api.functions if f.call_class is CallClass.REFUSED}
    assert not refused & set(seen.split())
