"""The page that lists every driver function."""

from __future__ import annotations

from itertools import groupby

from remoting.codegen.emit.environment import environment
from remoting.codegen.model import Api, CallClass, Function


def coverage_page(api: Api) -> str:
    """docs/reference/driver-coverage.md."""
    ordered = sorted(api.functions, key=lambda f: (f.row.family, f.c.symbol))
    families = [
        (name, [_line(function) for function in group])
        for name, group in groupby(ordered, lambda f: f.row.family)
    ]
    counts = {word: sum(1 for f in api.functions if f.call_class is word) for word in CallClass}
    return (
        environment()
        .get_template("driver-coverage.md.j2")
        .render(
            families=families,
            counts=counts,
            functions=len(api.functions),
            symbols=len(api.header.functions),
            carried=len(api.carried),
        )
    )


def _line(function: Function) -> dict[str, str]:
    row = function.row
    notes = [row.reason or row.note]
    if row.via:
        notes = [f"as {row.via}"]
    return {
        "symbol": function.c.symbol,
        "forms": ", ".join("_" + form.thread_form for form in function.forms),
        "call_class": function.call_class.value,
        "frame": f"0x{0x1000 + function.wire_id:04x}" if function.wire_id is not None else "",
        "note": "; ".join(note for note in notes if note),
    }
