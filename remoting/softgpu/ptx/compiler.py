"""From PTX text to an object file, through LLVM (llvmlite)."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass

import llvmlite.binding as llvm

from .emit import generate
from .errors import PtxError
from .scan import scan_module

#: Kernels up to this many instructions are optimised fully; larger ones less, since compile time
#: grows faster than the gain.
FULL_OPTIMISATION = 6000
SOME_OPTIMISATION = 40000

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
    if instructions <= FULL_OPTIMISATION:
        return 2
    return 1 if instructions <= SOME_OPTIMISATION else 0


def kernel_ir(text: str, kernel: str) -> str:
    """LLVM IR of a kernel, for tests and debugging."""
    return generate(scan_module(text), kernel)[0]


def compile_kernel(text: str, kernel: str, target: TargetSpec) -> bytes:
    """An ELF object that exports ``sgk_desc``; raises PtxError."""
    _initialise()
    ir, instructions = generate(scan_module(text), kernel)
    opt = optimisation_for(instructions) if target.opt is None else target.opt
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
