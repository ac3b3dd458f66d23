"""N-body with numba: asteroids between Mars and Jupiter, drawn by the Sun and eight planets.

The planets' orbits and masses are those of the Jet Propulsion Laboratory's table of Keplerian
elements for J2000; the asteroids start on near-circular orbits all over the main belt. Everything
moves for two years of leapfrog steps in double precision. NumPy computes the same; the largest
difference of a coordinate is reported in astronomical units.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
from numba import cuda
from report import report

ASTEROIDS = 4096
STEP = 2.0  # days
STEPS = 365
SUN = 0.01720209895**2  # Gauss's constant squared: the Sun's pull in au^3 / day^2
THREADS = 32
BODIES = 9

PLANETS = {
    # semi-major axis (au), eccentricity, inclination, mean longitude, longitude of the perihelion,
    # longitude of the node (degrees), the Sun's mass divided by the planet's
    "Mercury": (
        0.38709927,
        0.20563593,
        7.00497902,
        252.25032350,
        77.45779628,
        48.33076593,
        6023600,
    ),
    "Venus": (
        0.72333566,
        0.00677672,
        3.39467605,
        181.97909950,
        131.60246718,
        76.67984255,
        408523.7,
    ),
    "Earth and Moon": (
        1.00000261,
        0.01671123,
        -0.00001531,
        100.46457166,
        102.93768193,
        0.0,
        328900.6,
    ),
    "Mars": (1.52371034, 0.09339410, 1.84969142, -4.55343205, -23.94362959, 49.55953891, 3098708),
    "Jupiter": (
        5.20288700,
        0.04838624,
        1.30439695,
        34.39644051,
        14.72847983,
        100.47390909,
        1047.349,
    ),
    "Saturn": (
        9.53667594,
        0.05386179,
        2.48599187,
        49.95424423,
        92.59887831,
        113.66242448,
        3497.898,
    ),
    "Uranus": (
        19.18916464,
        0.04725744,
        0.77263783,
        313.23810451,
        170.9542763,
        74.01692503,
        22902.98,
    ),
    "Neptune": (
        30.06992276,
        0.00859048,
        1.77004347,
        -55.12002969,
        44.96476227,
        131.7842257,
        19412.24,
    ),
}


def on_orbit(
    a: float, e: float, inclination: float, longitude: float, perihelion: float, node: float
) -> tuple[np.ndarray, np.ndarray]:
    """Position and velocity around the Sun of a body with these elements (degrees)."""
    i, omega = math.radians(inclination), math.radians(node)
    argument = math.radians(perihelion - node)
    mean = math.radians(longitude - perihelion)
    anomaly = mean
    for _ in range(20):  # Kepler's equation, by Newton
        anomaly -= (anomaly - e * math.sin(anomaly) - mean) / (1 - e * math.cos(anomaly))
    rate = math.sqrt(SUN / a**3) / (1 - e * math.cos(anomaly))
    flat = math.sqrt(1 - e * e)
    place = np.array([a * (math.cos(anomaly) - e), a * flat * math.sin(anomaly)])
    speed = np.array([-a * math.sin(anomaly) * rate, a * flat * math.cos(anomaly) * rate])
    cw, sw, co, so = math.cos(argument), math.sin(argument), math.cos(omega), math.sin(omega)
    turn = np.array(
        [
            [cw * co - sw * so * math.cos(i), -sw * co - cw * so * math.cos(i)],
            [cw * so + sw * co * math.cos(i), -sw * so + cw * co * math.cos(i)],
            [sw * math.sin(i), cw * math.sin(i)],
        ]
    )
    return turn @ place, turn @ speed


def solar_system() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions and velocities, a row each, of all bodies, and the pull of the heavy nine."""
    states = [(np.zeros(3), np.zeros(3))]
    pull = [SUN]
    for *elements, ratio in PLANETS.values():
        states.append(on_orbit(*elements))
        pull.append(SUN / ratio)
    for k in range(ASTEROIDS):
        golden = k * 0.6180339887498949 % 1
        states.append(
            on_orbit(
                2.1 + 1.2 * k / ASTEROIDS, 0.05 + 0.1 * golden, 10 * golden, 222.5 * k, 137.5 * k, 0
            )
        )
    return np.array([s[0] for s in states]), np.array([s[1] for s in states]), np.array(pull)


@cuda.jit
def kick(position: Any, velocity: Any, pull: Any, days: float) -> None:
    """Every body is drawn by the nine heavy ones, which a block keeps in shared memory."""
    heavy = cuda.shared.array((BODIES, 4), dtype=np.float64)
    lane = cuda.threadIdx.x
    if lane < BODIES:
        for axis in range(3):
            heavy[lane, axis] = position[lane, axis]
        heavy[lane, 3] = pull[lane]
    cuda.syncthreads()
    body = cuda.grid(1)
    if body >= position.shape[0]:
        return
    x, y, z = position[body, 0], position[body, 1], position[body, 2]
    ax = ay = az = 0.0
    for other in range(BODIES):
        dx, dy, dz = heavy[other, 0] - x, heavy[other, 1] - y, heavy[other, 2] - z
        square = dx * dx + dy * dy + dz * dz
        if square > 0:
            weight = heavy[other, 3] / (square * math.sqrt(square))
            ax += weight * dx
            ay += weight * dy
            az += weight * dz
    velocity[body, 0] += ax * days
    velocity[body, 1] += ay * days
    velocity[body, 2] += az * days


@cuda.jit
def drift(position: Any, velocity: Any, days: float) -> None:
    """Every body moves on."""
    body = cuda.grid(1)
    if body < position.shape[0]:
        for axis in range(3):
            position[body, axis] += velocity[body, axis] * days


def on_gpu(position: np.ndarray, velocity: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """Positions after all steps, computed by the kernels above."""
    x, v, m = cuda.to_device(position), cuda.to_device(velocity), cuda.to_device(pull)
    grid = (len(position) + THREADS - 1) // THREADS
    for _ in range(STEPS):
        drift[grid, THREADS](x, v, STEP / 2)
        kick[grid, THREADS](x, v, m, STEP)
        drift[grid, THREADS](x, v, STEP / 2)
    result: np.ndarray = x.copy_to_host()
    return result


def on_cpu(position: np.ndarray, velocity: np.ndarray, pull: np.ndarray) -> np.ndarray:
    """The same with NumPy."""
    x, v = position.copy(), velocity.copy()
    for _ in range(STEPS):
        x += v * (STEP / 2)
        for other in range(BODIES):
            delta = x[other] - x
            square = (delta * delta).sum(axis=1)
            square[square == 0] = np.inf
            v += (pull[other] / (square * np.sqrt(square)) * STEP)[:, None] * delta
        x += v * (STEP / 2)
    return x


def main() -> None:
    """Runs both and compares."""
    system = solar_system()
    expected = on_cpu(*system)
    start = time.perf_counter()
    moved = on_gpu(*system)
    seconds = time.perf_counter() - start
    name = cuda.get_current_device().name
    report(
        "N-body of the asteroid belt (numba)",
        name.decode() if isinstance(name, bytes) else name,
        seconds,
        float(np.abs(moved - expected).max()),
        1e-9,
    )


if __name__ == "__main__":
    main()
