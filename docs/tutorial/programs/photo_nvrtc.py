"""An image filter with cuda-bindings and NVRTC: sharpens a photograph and writes it as PNG.

The input is china.jpg, a photograph that scikit-learn ships. A block reads its part of the picture
with a border into shared memory, blurs it with a Gaussian of 7x7, and adds what the blur took away
(unsharp mask). NumPy computes the same in double precision; the largest difference of a colour is
reported in units of 1/255.

    python photo_nvrtc.py [OUTPUT.png]
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import driver, nvrtc
from PIL import Image
from report import report
from sklearn.datasets import load_sample_image

RADIUS = 3
SIGMA = 1.5
AMOUNT = 1.2
TILE = 16

SOURCE = b"""
__constant__ float weights[2 * RADIUS + 1];

extern "C" __global__ void unsharp(const unsigned char* in, unsigned char* out, float* exact,
                                   int width, int height, float amount) {
  __shared__ float patch[TILE + 2 * RADIUS][TILE + 2 * RADIUS][3];
  const int side = TILE + 2 * RADIUS;
  for (int k = threadIdx.y * TILE + threadIdx.x; k < side * side; k += TILE * TILE) {
    const int x = min(max((int)(blockIdx.x * TILE) + k % side - RADIUS, 0), width - 1);
    const int y = min(max((int)(blockIdx.y * TILE) + k / side - RADIUS, 0), height - 1);
    for (int c = 0; c < 3; ++c) patch[k / side][k % side][c] = in[(y * width + x) * 3 + c];
  }
  __syncthreads();
  const int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  if (x >= width || y >= height) return;
  for (int c = 0; c < 3; ++c) {
    float blurred = 0;
    for (int j = 0; j <= 2 * RADIUS; ++j) {
      float row = 0;
      for (int i = 0; i <= 2 * RADIUS; ++i)
        row += weights[i] * patch[threadIdx.y + j][threadIdx.x + i][c];
      blurred += weights[j] * row;
    }
    const float centre = patch[threadIdx.y + RADIUS][threadIdx.x + RADIUS][c];
    const float sharp = fminf(fmaxf(centre + amount * (centre - blurred), 0.0f), 255.0f);
    exact[(y * width + x) * 3 + c] = sharp;
    out[(y * width + x) * 3 + c] = (unsigned char)rintf(sharp);
  }
}
"""


def gaussian() -> np.ndarray:
    """The weights of one row of the blur."""
    offsets = np.arange(-RADIUS, RADIUS + 1)
    weights: np.ndarray = np.exp(-(offsets**2) / (2 * SIGMA**2))
    return weights / weights.sum()


def on_cpu(photo: np.ndarray) -> np.ndarray:
    """The filter in double precision."""
    height, width, _ = photo.shape
    wide = np.pad(photo.astype(float), ((RADIUS, RADIUS), (RADIUS, RADIUS), (0, 0)), mode="edge")
    blurred = np.zeros(photo.shape)
    for j, down in enumerate(gaussian()):
        for i, across in enumerate(gaussian()):
            blurred += down * across * wide[j : j + height, i : i + width]
    return np.clip(photo + AMOUNT * (photo - blurred), 0, 255)


def checked(answer: tuple[Any, ...]) -> Any:
    """The values of a call that succeeded."""
    error, *values = answer
    if int(error) != 0:
        raise RuntimeError(f"CUDA answered {error}")
    return values[0] if len(values) == 1 else values


def compile_for(device: Any) -> bytes:
    """PTX of the source above for the device's compute capability."""
    attribute = driver.CUdevice_attribute
    major = checked(
        driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    )
    minor = checked(
        driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    )
    options = [
        f"--gpu-architecture=compute_{major}{minor}".encode(),
        f"-DRADIUS={RADIUS}".encode(),
        f"-DTILE={TILE}".encode(),
    ]
    program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"unsharp.cu", 0, [], []))
    checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    ptx = b" " * checked(nvrtc.nvrtcGetPTXSize(program))
    checked(nvrtc.nvrtcGetPTX(program, ptx))
    return ptx


def on_gpu(photo: np.ndarray, device: Any) -> tuple[np.ndarray, np.ndarray]:
    """The filtered picture in bytes, and its colours before they were rounded."""
    height, width, _ = photo.shape
    module = checked(driver.cuModuleLoadData(compile_for(device)))
    kernel = checked(driver.cuModuleGetFunction(module, b"unsharp"))
    weights = gaussian().astype(np.float32)
    address, size = checked(driver.cuModuleGetGlobal(module, b"weights"))
    assert size == weights.nbytes
    checked(driver.cuMemcpyHtoD(address, weights.ctypes.data, weights.nbytes))

    source = np.ascontiguousarray(photo)
    result, exact = np.empty_like(source), np.empty(source.shape, np.float32)
    inside, outside, colours = (
        checked(driver.cuMemAlloc(array.nbytes)) for array in (source, result, exact)
    )
    stream = checked(driver.cuStreamCreate(0))
    checked(driver.cuMemcpyHtoDAsync(inside, source.ctypes.data, source.nbytes, stream))
    values = (inside, outside, colours, width, height, AMOUNT)
    types = (None, None, None, ctypes.c_int, ctypes.c_int, ctypes.c_float)
    grid = ((width + TILE - 1) // TILE, (height + TILE - 1) // TILE, 1)
    checked(driver.cuLaunchKernel(kernel, *grid, TILE, TILE, 1, 0, stream, (values, types), 0))
    checked(driver.cuMemcpyDtoHAsync(result.ctypes.data, outside, result.nbytes, stream))
    checked(driver.cuMemcpyDtoHAsync(exact.ctypes.data, colours, exact.nbytes, stream))
    checked(driver.cuStreamSynchronize(stream))
    for block in (inside, outside, colours):
        checked(driver.cuMemFree(block))
    checked(driver.cuStreamDestroy(stream))
    checked(driver.cuModuleUnload(module))
    return result, exact


def main() -> None:
    """Filters the photograph on both and compares."""
    photo = load_sample_image("china.jpg")
    expected = on_cpu(photo)

    start = time.perf_counter()
    checked(driver.cuInit(0))
    device = checked(driver.cuDeviceGet(0))
    checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
    picture, exact = on_gpu(photo, device)
    seconds = time.perf_counter() - start

    output = Path(sys.argv[1] if len(sys.argv) > 1 else "china-sharp.png")
    Image.fromarray(picture).save(output)
    name = checked(driver.cuDeviceGetName(128, device)).split(b"\0")[0].decode()
    # The picture's bytes may round the other way where the exact colour lies half-way.
    rounding = np.abs(picture - exact).max()
    difference = float(np.abs(exact - expected).max()) if rounding <= 0.5 else float(rounding)
    report("sharpened photograph (NVRTC)", name, seconds, difference, 1e-3, picture=str(output))


if __name__ == "__main__":
    main()
