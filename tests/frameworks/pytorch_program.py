"""What a PyTorch program does with a GPU, step by step.

PyTorch's own kernels are machine code, which a software GPU skips: their results are worthless, and
only what the driver itself does (copies, memory, order, events) is compared. Triton's kernels are
PTX and are computed: their results are compared.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable

import torch
import torch.nn.functional as F
from steps import expect, main, measured, step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Tensor = torch.Tensor


# ---------------------------------------------------------------- device and memory


@step
def is_available() -> object:
    expect(torch.cuda.is_available(), "no GPU")
    properties = torch.cuda.get_device_properties(0)
    expect(torch.cuda.device_count() >= 1, "no device")
    free, total = torch.cuda.mem_get_info()
    expect(0 < free <= total, f"{free} of {total} bytes")
    return {
        "device": torch.cuda.get_device_name(0),
        "capability": list(torch.cuda.get_device_capability(0)),
        "total_memory": properties.total_memory,
        "torch": torch.__version__,
    }


@step
def copies() -> None:
    for kind in (torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool):
        host = torch.arange(100_003).to(kind)
        expect(torch.equal(host.cuda().cpu(), host), f"{kind} comes back changed")
    pinned = torch.arange(1 << 20, dtype=torch.int32).pin_memory()
    expect(pinned.is_pinned(), "not pinned")
    device = pinned.to("cuda", non_blocking=True)
    back = torch.empty_like(pinned).pin_memory()
    back.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    expect(torch.equal(back, pinned), "a pinned copy comes back changed")
    clone = torch.empty_like(device)
    clone.copy_(device)
    expect(torch.equal(clone.cpu(), pinned), "a copy on the device changes")


@step
def memory_stats() -> object:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    blocks = [torch.empty(1 << 20, device="cuda") for _ in range(16)]
    expect(torch.cuda.memory_allocated() - before == 16 << 22, "not 64 MiB")
    expect(torch.cuda.memory_stats()["allocated_bytes.all.peak"] >= 16 << 22, "no peak")
    del blocks
    expect(torch.cuda.memory_allocated() == before, "not given back")
    torch.cuda.empty_cache()
    torch.cuda.memory_summary()
    torch.cuda.memory_snapshot()
    return {"reserved": torch.cuda.memory_reserved()}


@step
def out_of_memory() -> None:
    _, total = torch.cuda.mem_get_info()
    try:
        torch.empty(total + (1 << 30), dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise AssertionError("more than all memory was allocated")


@step
def streams_and_events() -> object:
    side = torch.cuda.Stream()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    host = torch.arange(1 << 18, dtype=torch.float32).pin_memory()
    with torch.cuda.stream(side):
        start.record()
        device = host.to("cuda", non_blocking=True)
        device.add_(1)
        end.record()
    torch.cuda.current_stream().wait_stream(side)
    device.record_stream(torch.cuda.current_stream())
    end.synchronize()
    expect(end.query() and side.query(), "not over")
    milliseconds = start.elapsed_time(end)
    expect(milliseconds >= 0, f"{milliseconds} ms")
    high = torch.cuda.Stream(priority=-1)
    high.synchronize()
    torch.cuda.synchronize()
    return None


# ---------------------------------------------------------------- operations


@step
def elementwise_and_reductions() -> None:
    a = torch.rand(1000, 1000, device="cuda")
    b = torch.rand(1000, 1000, device="cuda")
    (a + b * 2).sin().exp().clamp(0, 1)
    a.sum(), a.mean(0), a.max(1), a.argmax(), a.std(), a.norm()
    a.cumsum(0), torch.cat([a, b]), a.t().contiguous(), torch.where(a > b, a, b)
    F.softmax(a, 1), F.layer_norm(a, (1000,)), F.gelu(a)
    torch.randn(1000, device="cuda"), torch.randint(0, 9, (100,), device="cuda")
    F.embedding(torch.randint(0, 10, (64,)).cuda(), torch.rand(10, 32, device="cuda"))
    torch.cuda.synchronize()


@step
def matmul() -> None:
    for kind in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        a, b = (torch.rand(256, 256, device="cuda", dtype=kind) for _ in range(2))
        a @ b
        torch.baddbmm(a[None], a[None], b[None])
        F.linear(a, b, a[0])
    for size in (1, 7, 64, 1000):
        torch.rand(size, 333, device="cuda") @ torch.rand(333, size, device="cuda")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.rand(512, 512, device="cuda") @ torch.rand(512, 512, device="cuda")
    torch.cuda.synchronize()


@step
def convolution() -> object:
    for kind in (torch.float32, torch.float16):
        layer = nn.Conv2d(16, 32, 3, padding=1).to("cuda", kind)
        image = torch.rand(4, 16, 32, 32, device="cuda", dtype=kind, requires_grad=True)
        layer(image).sum().backward()
        layer.to(memory_format=torch.channels_last)
        layer(image.detach().to(memory_format=torch.channels_last))
    nn.Conv1d(8, 8, 5).cuda()(torch.rand(2, 8, 100, device="cuda"))
    nn.Conv3d(4, 4, 3).cuda()(torch.rand(1, 4, 8, 8, 8, device="cuda"))
    nn.ConvTranspose2d(8, 4, 2, stride=2).cuda()(torch.rand(2, 8, 8, 8, device="cuda"))
    nn.Conv2d(16, 16, 3, groups=16).cuda()(torch.rand(2, 16, 16, 16, device="cuda"))
    torch.backends.cudnn.benchmark = True
    nn.Conv2d(8, 8, 3).cuda()(torch.rand(2, 8, 20, 20, device="cuda"))
    torch.backends.cudnn.benchmark = False
    torch.cuda.synchronize()
    return {"cudnn": torch.backends.cudnn.version()}


@step
def attention() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for kind in (torch.float16, torch.bfloat16, torch.float32):
        q, k, v = (
            torch.rand(2, 4, 128, 64, device="cuda", dtype=kind, requires_grad=True)
            for _ in range(3)
        )
        F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
        backends = [SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]
        if kind != torch.float32:
            backends.append(SDPBackend.FLASH_ATTENTION)
        for backend in backends:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v).sum().backward()
    nn.MultiheadAttention(64, 4, batch_first=True).cuda()(*(torch.rand(2, 16, 64).cuda(),) * 3)
    torch.cuda.synchronize()


@step
def recurrent() -> None:
    nn.LSTM(32, 64, 2).cuda()(torch.rand(10, 4, 32, device="cuda"))[0].sum().backward()
    nn.GRU(32, 64).cuda()(torch.rand(10, 4, 32, device="cuda"))
    torch.cuda.synchronize()


@step
def linear_algebra() -> None:
    # Iterative methods look at results: the matrix is made on the host, and only the calls count.
    a = torch.eye(16).cuda()
    torch.linalg.solve_ex(a, a)
    torch.linalg.cholesky_ex(a)
    torch.linalg.qr(a)
    torch.linalg.lu_factor_ex(a)
    torch.cuda.synchronize()


@step
def sparse() -> None:
    indices = torch.tensor([[0, 1, 2], [2, 0, 1]])
    matrix = torch.sparse_coo_tensor(indices, torch.ones(3), (3, 3), is_coalesced=True)
    torch.sparse.mm(matrix.cuda().to_sparse_csr(), torch.rand(3, 4).cuda())
    torch.cuda.synchronize()


@step
def fft() -> None:
    signal = torch.rand(4, 256, device="cuda")
    torch.fft.ifft(torch.fft.fft(signal))
    torch.fft.rfft2(torch.rand(2, 32, 32, device="cuda"))
    torch.cuda.synchronize()


@step
def quantised() -> None:
    a = torch.randint(-8, 8, (64, 64), dtype=torch.int8).cuda()
    torch._int_mm(a, a.t().contiguous().t())
    torch.rand(32, 32, device="cuda").to(torch.float8_e4m3fn).to(torch.float32)
    torch.cuda.synchronize()


# ---------------------------------------------------------------- training


def train(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Steps with AdamW and fresh inputs; what comes out is worthless, that it goes through is not."""
    model = model.cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def iteration() -> float:
        optimiser.zero_grad()
        loss = F.cross_entropy(model(inputs.cuda()), targets.cuda())
        loss.backward()
        optimiser.step()
        return loss.item()

    return measured(iteration)


@step
def mlp_step() -> object:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    return train(model, torch.rand(32, 256), torch.randint(0, 10, (32,)))


@step
def resnet_step() -> object:
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    return train(model, torch.rand(8, 3, 64, 64), torch.randint(0, 10, (8,)))


class Classifier(nn.Module):
    """A small transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        encoded: Tensor = self.encoder(self.embedding(tokens))
        result: Tensor = self.head(encoded.mean(1))
        return result


@step
def transformer_step() -> object:
    return train(Classifier(), torch.randint(0, 1000, (8, 32)), torch.randint(0, 10, (8,)))


@step
def inference() -> object:
    model = Classifier().cuda().eval()
    tokens = torch.randint(0, 1000, (8, 32))

    def iteration() -> Tensor:
        with torch.inference_mode():
            return model(tokens.cuda()).cpu()

    return measured(iteration)


@step
def amp() -> object:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).cuda()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    images, labels = torch.rand(4, 3, 8, 8), torch.randint(0, 10, (4,))

    def iteration() -> None:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(images.cuda()), labels.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()

    return measured(iteration)


# ---------------------------------------------------------------- graphs, compilers


@step
def cuda_graph() -> object:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
    static_input = torch.rand(16, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(static_input)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    copied = torch.empty_like(static_input)
    with torch.cuda.graph(graph):
        model(static_input)
        copied.copy_(static_input)  # the driver's own copy: its result counts

    def iteration() -> None:
        host = torch.rand(16, 64)
        static_input.copy_(host)
        graph.replay()
        expect(torch.equal(copied.cpu(), host), "the graph's copy is not what went in")

    figures = measured(iteration)
    callable_model = torch.cuda.make_graphed_callables(
        nn.Linear(64, 64).cuda(), (torch.rand(4, 64, device="cuda", requires_grad=True),)
    )
    callable_model(torch.rand(4, 64, device="cuda", requires_grad=True)).sum().backward()
    torch.cuda.synchronize()
    return figures


@step
def torch_compile() -> object:
    @torch.compile
    def fused(x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x * y + 1) - torch.sigmoid(y)

    x, y = torch.rand(1000), torch.rand(1000)
    got = fused(x.cuda(), y.cuda()).cpu()
    wanted = torch.relu(x * y + 1) - torch.sigmoid(y)
    # Triton's kernel is PTX, and computed.
    expect(torch.allclose(got, wanted, atol=1e-5), f"off by {(got - wanted).abs().max()}")

    @torch.compile
    def normalised(x: Tensor) -> Tensor:
        return F.softmax(x, 1) + F.layer_norm(x, (x.shape[1],))

    x = torch.randn(16, 300)
    got = normalised(x.cuda()).cpu()
    wanted = F.softmax(x, 1) + F.layer_norm(x, (300,))
    expect(torch.allclose(got, wanted, atol=1e-4), f"off by {(got - wanted).abs().max()}")

    resident = torch.rand(1000, device="cuda")
    return measured(lambda: fused(resident, resident))


@step
def torch_compile_training() -> object:
    model = torch.compile(nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10)))
    return train(model, torch.rand(16, 64), torch.randint(0, 10, (16,)))


@step
def triton_kernel() -> None:
    from triton_kernels import check

    check()


@step
def runtime_compiled_kernel() -> None:
    source = """extern "C" __global__ void scale(float* x, float by, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= by; }"""
    kernel = torch.cuda._compile_kernel(source, "scale")
    x = torch.arange(1000, dtype=torch.float32)
    device = x.cuda()
    kernel((4, 1, 1), (256, 1, 1), (device, 3.0, 1000))
    torch.cuda.synchronize()


# ---------------------------------------------------------------- processes


@step
def data_loader() -> object:
    data = TensorDataset(torch.arange(64.0).reshape(64, 1), torch.arange(64))
    seen = 0
    for values, numbers in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
        expect(values.is_pinned(), "not pinned")
        device = values.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        expect(torch.equal(device.cpu()[:, 0].long(), numbers), "a batch arrives changed")
        seen += len(numbers)
    expect(seen == 64, f"{seen} rows")
    return {"workers": 2}


def _in_process(method: str, body: Callable[[object], None]) -> object:
    import torch.multiprocessing as mp

    context = mp.get_context(method)
    queue = context.SimpleQueue()
    child = context.Process(target=body, args=(queue,))
    child.start()
    child.join(120)
    expect(child.exitcode == 0, f"the child ended with {child.exitcode}")
    return queue.get()


def _forked(queue: object) -> None:
    try:
        torch.zeros(1, device="cuda")
        queue.put("worked")  # type: ignore[attr-defined]
    except RuntimeError as error:
        queue.put(str(error).splitlines()[0])  # type: ignore[attr-defined]


def _spawned(queue: object) -> None:
    host = torch.arange(1000)
    queue.put("equal" if torch.equal(host.cuda().cpu(), host) else "changed")  # type: ignore[attr-defined]


@step
def fork_after_start() -> object:
    torch.zeros(1, device="cuda")
    said = _in_process("fork", _forked)
    expect("Cannot re-initialize CUDA" in str(said), f"the child says {said}")
    expect(torch.equal(torch.ones(5).cuda().cpu(), torch.ones(5)), "the parent is disturbed")
    return said


@step
def spawned_process() -> object:
    said = _in_process("spawn", _spawned)
    expect(said == "equal", f"the child says {said}")
    return said


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    # Compiled kernels of the user's earlier runs are none of ours.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.getcwd(), "inductor"))
    sys.exit(main())
