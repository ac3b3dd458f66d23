"""What results mean, in our own words: the header's comments are the vendor's and not copied."""

from __future__ import annotations

_TEXTS = {
    "CUDA_SUCCESS": "no error",
    "CUDA_ERROR_OUT_OF_MEMORY": "out of memory",
    "CUDA_ERROR_NOT_INITIALIZED": "the driver is not initialised",
    "CUDA_ERROR_DEINITIALIZED": "the driver is shutting down",
    "CUDA_ERROR_NO_DEVICE": "there is no device that can be used",
    "CUDA_ERROR_DEVICE_UNAVAILABLE": "the device is unavailable, or the connection to it is lost",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the image holds no code that this device can run",
    "CUDA_ERROR_NOT_READY": "the work is not done yet",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel used an address that it may not use",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the launch asks for more resources than there are",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "the kernel ran too long and was stopped",
    "CUDA_ERROR_LAUNCH_FAILED": "the kernel failed",
    "CUDA_ERROR_UNKNOWN": "unknown error",
}


def error_text(name: str) -> str:
    """A short text for a CUresult: from the table, or the words of its name."""
    words = name.removeprefix("CUDA_ERROR_").replace("_", " ").lower()
    return _TEXTS.get(name, words)
