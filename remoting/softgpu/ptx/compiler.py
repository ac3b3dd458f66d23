"""From PTX text to an object file, through LLVM (llvmlite)."""

from __future__ import annotations

import functools
import re
import threading
from dataclasses import dataclass

import llvmlite.binding as llvm

from .emit import generate
from .errors import PtxError
from .families import load_all
from .scan import scan_module

#: Kernels up to this many instructions are optimised fully; larger ones less, since compile time
#: grows faster than the gain.
FULL_OPTIMISATION = 6000

#: Most stack that a kernel may take. Fibers have 4 MiB (exec/fiber.h); the helpers need some too.
#: Without optimisation every value has a place of its own on the stack, which large kernels exceed.
STACK_LIMIT = 3900 << 10

_TAKE_STACK = re.compile(rb"\x48\x81\xec(.{4})", re.S)  # sub $imm32, %rsp

_lock = threading.Lock()
_ready = False


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """What to generate code for.  ``opt`` None: by the kernel's size."""

    cpu: str
    features: str
    opt: int | None = None

    @staticmethod
    def host(opt: int | None = None) -> TargetSpec:
        """This machine."""
        _initialise()
        features = llvm.get_host_cpu_features().flatten()
        return TargetSpec(llvm.get_host_cpu_name(), features, opt)


def _initialise() -> None:
    global _ready
    with _lock:
        if not _ready:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _ready = True


@functools.lru_cache(maxsize=8)
def _machine(cpu: str, features: str, opt: int) -> llvm.TargetMachine:
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="default"
    )


def optimisation_for(instructions: int) -> int:
    """Optimisation level for a kernel of this size."""
    return 2 if instructions <= FULL_OPTIMISATION else 1


def stack_bytes(code: bytes) -> int:
    """The largest frame in an object; 0 when none is over 128 bytes."""
    frames = (int.from_bytes(m.group(1), "little", signed=True) for m in _TAKE_STACK.finditer(code))
    return max((f for f in frames if f % 8 == 0), default=0)


def prepare() -> None:
    """Do now what otherwise each process that is forked from this one would do for itself."""
    load_all()
    target = TargetSpec.host()
    _machine(target.cpu, target.features, optimisation_for(0))


def kernel_ir(text: str, kernel: str) -> str:
    """LLVM IR of a kernel, for tests and debugging."""
    return generate(scan_module(text), kernel)[0]


def compile_kernel(text: str, kernel: str, target: TargetSpec) -> bytes:
    """An ELF object that exports ``sgk_desc``; raises PtxError."""
    _initialise()
    ir, instructions = generate(scan_module(text), kernel)
    opt = optimisation_for(instructions) if target.opt is None else target.opt
    code = _emit(ir, kernel, target, opt)
    if opt == 0 and stack_bytes(code) > STACK_LIMIT:
        code = _emit(ir, kernel, target, 1)
    if stack_bytes(code) > STACK_LIMIT:
        need = stack_bytes(code) >> 10
        raise PtxError(
            "unsupported_form",
            f"kernel {kernel} is too large: it needs {need} KiB of stack for its registers "
            f"(at most {STACK_LIMIT >> 10})",
        )
    return code


def _emit(ir: str, kernel: str, target: TargetSpec, opt: int) -> bytes:
    machine = _machine(target.cpu, target.features, opt)
    try:
        module = llvm.parse_assembly(ir)
    except RuntimeError as error:
        raise PtxError(
            "invalid_ptx", f"kernel {kernel}: generated code is not valid: {error}"
        ) from error
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    options = llvm.PipelineTuningOptions(speed_level=opt)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_interleaving = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    if opt > 0:
        builder.getModulePassManager().run(module, builder)
    else:
        # Registers into values: half the code to emit, so that it also takes half the time.
        manager = llvm.create_new_module_pass_manager()
        manager.add_sroa_pass()
        manager.run(module, builder)
    return bytes(machine.emit_object(module))
