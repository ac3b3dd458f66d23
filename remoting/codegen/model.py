"""The model that the passes build and the emitters read. Plain data, no text of any target."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum, StrEnum


class CallClass(StrEnum):
    """How a driver function is carried; see README.md for what each promises."""

    LOCAL = "local"
    SEND = "send"
    TRIP = "trip"
    CALLBACK = "callback"
    REFUSED = "refused"


CARRIED = (CallClass.SEND, CallClass.TRIP, CallClass.CALLBACK)

HANDLE_KINDS = {
    "context": 1,
    "stream": 2,
    "event": 3,
    "module": 4,
    "function": 5,
    "library": 6,
    "kernel": 7,
    "memory_pool": 8,
    "graph": 9,
    "graph_exec": 10,
    "graph_node": 11,
    "array": 12,
    "link_state": 13,
    "allocation": 14,
    "blob": 15,
    "texture": 16,
    "surface": 17,
    "user_object": 18,
}
"""Kinds of handles and their numbers on the wire: PROTOCOL.md section 7.3."""

HANDLE_TYPES = {
    "CUcontext": "context",
    "CUstream": "stream",
    "CUevent": "event",
    "CUmodule": "module",
    "CUfunction": "function",
    "CUlibrary": "library",
    "CUkernel": "kernel",
    "CUmemoryPool": "memory_pool",
    "CUgraph": "graph",
    "CUgraphExec": "graph_exec",
    "CUgraphNode": "graph_node",
    "CUarray": "array",
    "CUmipmappedArray": "array",
    "CUlinkState": "link_state",
    "CUmemGenericAllocationHandle": "allocation",
    "CUtexObject": "texture",
    "CUsurfObject": "surface",
    "CUuserObject": "user_object",
}
"""The C type that means each kind."""

_VERSION = re.compile(r"_v(\d+)$")
_THREAD_FORM = re.compile(r"_(ptsz|ptds)$")


@dataclass(frozen=True)
class CType:
    """A parameter's type: `base` behind `depth` pointers; `const` says that the pointee is."""

    base: str
    depth: int = 0
    const: bool = False


@dataclass(frozen=True)
class CParam:
    """One parameter as the header declares it."""

    name: str
    ctype: CType
    declaration: str


@dataclass(frozen=True)
class CFunction:
    """One exported symbol."""

    symbol: str
    params: tuple[CParam, ...]

    @property
    def base(self) -> str:
        """The symbol without `_ptsz` and `_ptds`: the name of its row."""
        return _THREAD_FORM.sub("", self.symbol)

    @property
    def thread_form(self) -> str:
        """`ptsz`, `ptds` or empty."""
        match = _THREAD_FORM.search(self.symbol)
        return match.group(1) if match else ""

    @property
    def version(self) -> int:
        """N of `_vN`, 1 without."""
        match = _VERSION.search(self.base)
        return int(match.group(1)) if match else 1

    @property
    def family_name(self) -> str:
        """The name that programs ask `cuGetProcAddress` for."""
        return _VERSION.sub("", self.base)

    @property
    def declaration(self) -> str:
        """The parameter list in C."""
        return ", ".join(param.declaration for param in self.params)

    @property
    def arguments(self) -> str:
        """The parameters' names, for passing them on."""
        return ", ".join(param.name for param in self.params)


@dataclass(frozen=True)
class Header:
    """What the vendor's headers say."""

    functions: dict[str, CFunction]
    typedefs: dict[str, CType]
    enums: frozenset[str]
    structs: frozenset[str]
    function_pointers: frozenset[str]
    proc_typedefs: tuple[ProcTypedef, ...]
    error_codes: tuple[tuple[str, int], ...]

    def bases(self) -> list[str]:
        """Names of rows that must exist, sorted."""
        return sorted({function.base for function in self.functions.values()})


@dataclass(frozen=True)
class ProcTypedef:
    """`PFN_<name>_v<version>[_ptsz|_ptds]`: an ABI of a name, and the CUDA version it came with."""

    name: str
    version: int
    thread_form: str
    parameter_count: int


@dataclass(frozen=True)
class ProcEntry:
    """One line of the proc-address table."""

    name: str
    version: int
    per_thread: bool
    symbol: str


@dataclass(frozen=True)
class WireType:
    """A type of the codec.

    `kind` is a scalar (`u8` … `f64`, `bool`), `bytes`, `string`, `array` (N raw bytes), `pod` (a C
    structure byte for byte), `list` (of `element`) or `struct`. `limit` bounds bytes, string and
    list, and is the size of an array. `name` is the structure's or C type's name.
    """

    kind: str
    limit: int = 0
    name: str = ""
    element: WireType | None = None


@dataclass(frozen=True)
class WireField:
    """One field of a message, call or structure."""

    name: str
    type: WireType
    handle: str = ""
    """Kind of handle that a u64 field holds, or `device` for an i32 that is an ordinal."""


@dataclass(frozen=True)
class WireStruct:
    """Fields in the order in which they are carried."""

    name: str
    fields: tuple[WireField, ...]


@dataclass(frozen=True)
class Message:
    """A message that is not a driver call."""

    name: str
    type: int
    phase: str
    sender: str
    answer: str
    open: bool
    body: WireStruct


@dataclass(frozen=True)
class Protocol:
    """All of messages.toml."""

    version: int
    structs: tuple[WireStruct, ...]
    messages: tuple[Message, ...]


@dataclass(frozen=True)
class ParamSpec:
    """What a row says about one parameter; empty values are inferred."""

    dir: str = ""
    handle: str = ""
    ownership: str = ""
    length: str = ""
    string: bool = False
    limit: int = 0


@dataclass(frozen=True)
class Row:
    """One function of the specification, as written."""

    name: str
    family: str
    call_class: CallClass | None
    via: str = ""
    """The function whose body answers this one too: another name with the same meaning."""
    reason: str = ""
    note: str = ""
    client: str = ""
    worker: str = ""
    frame: bool = False
    """Whether it has a frame of its own; without one its body uses other functions' frames."""
    cache: bool = False
    params: dict[str, ParamSpec] = field(default_factory=dict)
    call: tuple[tuple[str, ...], ...] = ()
    reply: tuple[tuple[str, ...], ...] = ()


class Role(Enum):
    """What a parameter of a carried function is to the codec."""

    NONE = "none"
    """Not carried as it stands; the custom bodies know."""
    VALUE = "value"
    HANDLE = "handle"
    DEVICE = "device"
    DESTROY = "destroy"
    """A handle that ends with this call."""
    CREATE = "create"
    """A pointer to a new handle: the client makes the id and sends it."""
    STRING = "string"
    BYTES = "bytes"
    POINTEE = "pointee"
    """A pointer to one structure that goes in."""
    OUT = "out"
    """A pointer to one value that comes back."""
    BYTES_OUT = "bytes_out"

    @property
    def in_call(self) -> bool:
        """Whether it belongs to the call and not to its reply."""
        return self not in (Role.OUT, Role.BYTES_OUT)


@dataclass(frozen=True)
class Param:
    """A parameter after the passes: how it is carried."""

    c: CParam
    role: Role
    field: WireField | None = None
    length: str = ""
    """For bytes: the expression in other parameters that says how many."""


@dataclass(frozen=True)
class Function:
    """A row joined with its symbol."""

    row: Row
    c: CFunction
    call_class: CallClass
    forms: tuple[CFunction, ...]
    """The `_ptsz`/`_ptds` symbols of the same function."""
    wire_id: int | None = None
    params: tuple[Param, ...] = ()
    call: WireStruct | None = None
    reply: WireStruct | None = None

    @property
    def carried(self) -> bool:
        """Whether it has a frame of its own."""
        return self.wire_id is not None

    @property
    def struct_name(self) -> str:
        """Name of its structure in `calls.h`."""
        return self.c.symbol[0].upper() + self.c.symbol[1:]

    @property
    def client_generated(self) -> bool:
        """Whether the client's body is written by the generator."""
        return bool(self.row.via) or (self.carried and self.row.client == "generated")


@dataclass(frozen=True)
class Api:
    """Everything that the emitters need."""

    header: Header
    functions: tuple[Function, ...]
    procs: tuple[ProcEntry, ...]
    structs: tuple[WireStruct, ...]

    @property
    def carried(self) -> list[Function]:
        """Functions with a frame, by wire id."""
        return sorted((f for f in self.functions if f.carried), key=lambda f: f.wire_id or 0)
