"""What a JAX program does with a GPU, step by step.

XLA makes machine code of its kernels, which a software GPU skips: results are worthless, and only
what the driver itself does (copies, memory, order) is compared.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import hardware_utils
from steps import expect, main, measured, step

Array = Any
Parameters = list[dict[str, Array]]


def random(*shape: int) -> Array:
    """Made on the host: kernels that make random numbers would be skipped."""
    return jnp.asarray(np.random.default_rng(1).random(shape, np.float32))


@step
def devices() -> object:
    (device,) = jax.devices("gpu")
    return {"device": device.device_kind, "jax": jax.__version__}


@step
def copies() -> None:
    for kind in (np.float32, np.float16, np.int32, np.uint8, np.bool_):
        host = np.arange(100_003).astype(kind)
        device = jax.device_put(host, jax.devices("gpu")[0])
        expect(np.array_equal(np.asarray(device), host), f"{kind} comes back changed")


@step
def jit() -> object:
    compiled = jax.jit(lambda x, y: jnp.tanh(x @ y) + 1)
    x, y = random(256, 256), random(256, 256)
    return measured(lambda: compiled(x, y).block_until_ready())


@step
def matmul() -> None:
    for kind in (jnp.float32, jnp.float16, jnp.bfloat16):
        a = random(128, 128).astype(kind)
        (a @ a).block_until_ready()
    jnp.einsum("bij,bjk->bik", random(4, 16, 32), random(4, 32, 8)).block_until_ready()


@step
def convolution() -> None:
    image, kernel = random(2, 8, 32, 32), random(16, 8, 3, 3)

    def loss(kernel: Array) -> Array:
        return jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME").sum()

    jax.jit(jax.grad(loss))(kernel).block_until_ready()


@step
def gradient() -> None:
    jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 2))(random(100)).block_until_ready()
    jax.jit(jax.hessian(lambda x: jnp.sum(x**3)))(random(8)).block_until_ready()


@step
def scan() -> None:
    def body(carry: Array, x: Array) -> tuple[Array, Array]:
        return jnp.tanh(carry + x), carry.sum()

    jax.jit(lambda xs: jax.lax.scan(body, jnp.zeros(16), xs))(random(20, 16))[0].block_until_ready()
    jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, c: c * 2 + 1, x))(random(4))


@step
def transformations() -> None:
    jax.vmap(lambda a, b: a @ b)(random(8, 4, 4), random(8, 4, 4)).block_until_ready()
    jnp.sort(random(1000)).block_until_ready()
    jnp.cumsum(random(1000)).block_until_ready()
    jax.random.normal(jax.random.key(0), (100,)).block_until_ready()
    jax.nn.softmax(random(16, 100)).block_until_ready()


@step
def attention() -> None:
    q, k, v = (random(2, 64, 4, 32).astype(jnp.float16) for _ in range(3))
    jax.jit(jax.nn.dot_product_attention)(q, k, v).block_until_ready()


def _loss(parameters: Parameters, x: Array, y: Array) -> Array:
    for layer in parameters[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ parameters[-1]["w"] + parameters[-1]["b"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1))


@step
def training_step() -> object:
    sizes = (256, 512, 10)
    parameters = [{"w": random(a, b), "b": random(b)} for a, b in itertools.pairwise(sizes)]

    @jax.jit
    def update(parameters: Parameters, x: Array, y: Array) -> tuple[Parameters, Array]:
        loss, gradients = jax.value_and_grad(_loss)(parameters, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), loss

    x = np.random.default_rng(2).random((32, 256), np.float32)
    y = np.arange(32) % 10

    def iteration() -> float:
        nonlocal parameters
        parameters, loss = update(parameters, x, y)
        return float(loss)

    return measured(iteration)


@step
def memory() -> object:
    statistics = jax.devices("gpu")[0].memory_stats()
    expect(statistics["bytes_in_use"] >= 0, "no figures")
    return {"limit": statistics["bytes_limit"]}


if __name__ == "__main__":
    # JAX asks for a device file of NVIDIA's kernel driver before anything else. People make an empty
    # /dev/nvidiactl; a test must not write into /dev.
    hardware_utils._NVIDIA_GPU_DEVICES.append("/dev/null")
    sys.exit(main())
