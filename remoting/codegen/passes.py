"""Joins rows and symbols, infers what rows leave out, and checks that nothing is missing.

Each pass takes the model of the one before and adds to a common list of faults; `build_api` runs
them in order and raises once with all of them.
"""

from __future__ import annotations

import difflib
from collections import defaultdict
from dataclasses import replace

from remoting.codegen.errors import SpecError
from remoting.codegen.infer import wire_params
from remoting.codegen.model import (
    Api,
    CallClass,
    CFunction,
    Function,
    Header,
    ProcEntry,
    ProcTypedef,
    Row,
    WireField,
    WireStruct,
)
from remoting.codegen.spec import IDS, Spec
from remoting.codegen.wire import parse_struct


def build_api(header: Header, spec: Spec) -> Api:
    """Run all passes."""
    faults: list[str] = []
    _check_parity(header, spec, faults)
    if faults:
        raise SpecError(faults)
    functions = _attach(header, spec, faults)
    _check_via(functions, header, faults)
    _check_ids(functions, spec, faults)
    functions = [_infer(function, header, spec, faults) for function in functions]
    procs = pair_procs(header, faults)
    if faults:
        raise SpecError(faults)
    return Api(header, tuple(functions), tuple(procs), tuple(spec.structs.values()))


def _check_parity(header: Header, spec: Spec, faults: list[str]) -> None:
    """A function without a row, or a row without a function, is an error."""
    bases = set(header.bases())
    for base in sorted(bases - set(spec.rows)):
        faults.append(
            f"{base} is in cuda.h and has no row: add [{base}] to a file of remoting/apispec"
        )
    for name in sorted(set(spec.rows) - bases):
        near = difflib.get_close_matches(name, bases, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        faults.append(f"{spec.rows[name].family}.toml: [{name}] is no function of cuda.h{hint}")
    for base in sorted(bases - set(header.functions)):
        faults.append(
            f"{base} exists in cuda.h only as a per-thread form: the generator has no rule for that"
        )


def _attach(header: Header, spec: Spec, faults: list[str]) -> list[Function]:
    forms: dict[str, list[CFunction]] = defaultdict(list)
    for function in header.functions.values():
        if function.thread_form:
            forms[function.base].append(function)
    attached: list[Function] = []
    for name in sorted(spec.rows):
        row = spec.rows[name]
        attached.append(
            Function(
                row=row,
                c=header.functions[name],
                call_class=_class_of(row, spec.rows, faults),
                forms=tuple(sorted(forms[name], key=lambda form: form.symbol)),
                wire_id=spec.ids.get(name) if row.frame else None,
            )
        )
    return attached


def _class_of(row: Row, rows: dict[str, Row], faults: list[str]) -> CallClass:
    if not row.via:
        return row.call_class or CallClass.REFUSED
    target = rows.get(row.via)
    if target is None or target.via or target.call_class is CallClass.REFUSED:
        faults.append(
            f"{row.family}.toml: [{row.name}] via {row.via!r}: name a function that is not refused"
        )
        return CallClass.REFUSED
    return target.call_class or CallClass.REFUSED


def _check_via(functions: list[Function], header: Header, faults: list[str]) -> None:
    """Parameters go on by position: as many, or all but the stream at the end."""
    for function in functions:
        target = header.functions.get(function.row.via)
        if target is None:
            continue
        own, wanted = function.c.params, target.params
        missing = wanted[len(own) :]
        alike = all(a.ctype.depth == b.ctype.depth for a, b in zip(own, wanted, strict=False))
        stream = len(missing) == 1 and missing[0].ctype.base == "CUstream"
        if not alike or len(own) > len(wanted) or (missing and not stream):
            where = f"{function.row.family}.toml: [{function.row.name}]"
            faults.append(f"{where} via {target.symbol}: {target.symbol} takes other parameters")


def _check_ids(functions: list[Function], spec: Spec, faults: list[str]) -> None:
    fresh = max(spec.ids.values(), default=0)
    for function in functions:
        if function.row.frame and function.wire_id is None:
            fresh += 1
            faults.append(
                f"{function.row.name} has no wire id: append one ({fresh} is free) to {IDS}, "
                "or run the generator with --assign-ids"
            )


def _infer(function: Function, header: Header, spec: Spec, faults: list[str]) -> Function:
    if not function.carried:
        return function
    row = function.row
    where = f"{row.family}.toml: [{row.name}]"
    for name in row.params:
        if name not in {param.name for param in function.c.params}:
            near = difflib.get_close_matches(name, [p.name for p in function.c.params], 1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            faults.append(f"{where} has no parameter {name!r}{hint}")
    params = wire_params(function, header, where, faults)
    call = [p.field for p in params if p.field is not None and p.role.in_call]
    reply = [p.field for p in params if p.field is not None and not p.role.in_call]
    extra_call = parse_struct(row.name, row.call, spec.structs, f"{where} call", faults)
    extra_reply = parse_struct(row.name, row.reply, spec.structs, f"{where} reply", faults)
    if function.call_class is CallClass.SEND and (reply or extra_reply.fields):
        faults.append(f"{where} has out fields, so it cannot be of class send")
    if (extra_call.fields or extra_reply.fields) and "generated" in (row.client, row.worker):
        faults.append(f"{where} has fields of its own: both bodies must be custom")
    return replace(
        function,
        params=tuple(params),
        call=_struct(function.struct_name, call, extra_call, where, faults),
        reply=_struct(f"{function.struct_name}Reply", reply, extra_reply, where, faults),
    )


def _struct(
    name: str, fields: list[WireField], extra: WireStruct, where: str, faults: list[str]
) -> WireStruct:
    taken = {field.name for field in fields}
    faults += [
        f"{where}: field {field.name!r} has the name of a parameter"
        for field in extra.fields
        if field.name in taken
    ]
    return WireStruct(name, (*fields, *extra.fields))


def pair_procs(header: Header, faults: list[str]) -> list[ProcEntry]:
    """Pair `PFN_` typedefs with symbols: sort both by version; they must be as many.

    `cudaTypedefs.h` names an ABI by the CUDA version that brought it, the library by a counting
    suffix; nothing else connects the two.
    """
    symbols: dict[tuple[str, str], list[CFunction]] = defaultdict(list)
    typedefs: dict[tuple[str, str], list[ProcTypedef]] = defaultdict(list)
    for function in header.functions.values():
        symbols[function.family_name, function.thread_form].append(function)
    for typedef in header.proc_typedefs:
        typedefs[typedef.name, typedef.thread_form].append(typedef)
    entries: list[ProcEntry] = []
    for key in sorted(set(symbols) | set(typedefs)):
        name, form = key
        by_symbol = sorted(symbols[key], key=lambda function: function.version)
        by_version = sorted(typedefs[key], key=lambda typedef: typedef.version)
        if len(by_symbol) != len(by_version):
            faults.append(
                f"{name}: cuda.h has {[f.symbol for f in by_symbol]}, "
                f"cudaTypedefs.h has versions {[t.version for t in by_version]}"
            )
        for function, typedef in zip(by_symbol, by_version, strict=False):
            if len(function.params) != typedef.parameter_count:
                faults.append(
                    f"{function.symbol} has {len(function.params)} parameters, "
                    f"its typedef of version {typedef.version} has {typedef.parameter_count}"
                )
            entries.append(ProcEntry(name, typedef.version, bool(form), function.symbol))
    return sorted(entries, key=lambda entry: (entry.name, entry.per_thread, entry.version))
