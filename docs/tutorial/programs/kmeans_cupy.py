"""k-means with CuPy: ten groups of handwritten digits.

The input is the digits data set that scikit-learn ships: 1,797 scans of 8x8 pixels. NumPy computes
the same iterations from the same start; the largest difference of a centre's pixel is reported, and
how many of the groups' members are of their group's commonest digit.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import cupy
import numpy
from report import report
from sklearn.datasets import load_digits

CLUSTERS = 10
ITERATIONS = 20


def centres_of(xp: ModuleType, pixels: Any, labels: Any, old: Any) -> Any:
    """The mean of each group's members; a group without members stays where it was."""
    members = (labels[None, :] == xp.arange(CLUSTERS)[:, None]).astype(pixels.dtype)
    counts = members.sum(axis=1)
    sums = (members[:, :, None] * pixels[None, :, :]).sum(axis=1)
    return xp.where(counts[:, None] > 0, sums / xp.maximum(counts, 1)[:, None], old)


def kmeans(xp: ModuleType, pixels: Any) -> tuple[Any, Any]:
    """Lloyd's algorithm on whichever of NumPy and CuPy is given; returns centres and labels."""
    centres = pixels[:: len(pixels) // CLUSTERS][:CLUSTERS].copy()
    for _ in range(ITERATIONS):
        distances = ((pixels[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        labels = distances.argmin(axis=1)
        centres = centres_of(xp, pixels, labels, centres)
    return centres, labels


def purity(labels: Any, digits: Any) -> float:
    """Share of the scans that show the commonest digit of their group."""
    common = [numpy.bincount(digits[labels == k], minlength=1).max() for k in range(CLUSTERS)]
    return float(sum(common) / len(digits))


def main() -> None:
    """Runs both and compares."""
    digits = load_digits()
    expected, _ = kmeans(numpy, digits.data)

    start = time.perf_counter()
    centres, labels = kmeans(cupy, cupy.asarray(digits.data))
    centres, labels = cupy.asnumpy(centres), cupy.asnumpy(labels)
    seconds = time.perf_counter() - start

    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    difference = float(numpy.abs(centres - expected).max())
    report(
        "k-means of handwritten digits (CuPy)",
        name,
        seconds,
        difference,
        1e-9,
        purity=round(purity(labels, digits.target), 4),
    )


if __name__ == "__main__":
    main()
