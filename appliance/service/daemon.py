"""The daemon from start to end. `serve` reads as the architecture."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from structlog.typing import FilteringBoundLogger

from appliance.broker import Broker, GrantPolicy
from appliance.config import ConfigError, Endpoint, Settings
from appliance.core.pool import MemoryStore, Pool
from appliance.inventory import NvmlInventory
from appliance.service.ready import write_ready_file
from appliance.service.state import State, open_state
from appliance.spawner import CompileHelper, Limits, Spawner

_MAX_UNIX_PATH = 107  # sockaddr_un.sun_path, without its zero byte
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SOFTWARE_GPU = "HEADRACE_SOFTGPU"
_COMPILER = "HEADRACE_SOFTGPU_COMPILER"
_STATE = "HEADRACE_SOFTGPU_STATE"
_SASS = "HEADRACE_SOFTGPU_SASS"


async def serve(settings: Settings, log: FilteringBoundLogger) -> None:
    """Run until SIGTERM or SIGINT."""
    _check(settings)
    _raise_descriptor_limit()
    stop = _stop_signal()

    # The state folder is ours from here on: CA, pseudonym key, one daemon at a time.
    with open_state(settings.state) as state:
        # What there is to lend.
        pool = _pool(settings)

        # Whatever is started from here on ends in reverse order, also when a later step fails.
        async with contextlib.AsyncExitStack() as ending:
            helper = _compile_helper(settings, log)
            if helper:
                ending.push_async_callback(helper.stop, settings.stop_time)

            # Ports are open, but nothing is accepted before the broker can answer workers.
            spawner = _spawner(settings, state, log)
            endpoints = spawner.listen(settings.listen)
            policy = _grant_policy(settings, endpoints, helper)
            broker = Broker(
                pool, state.authority, state.pseudonyms, spawner, policy, time.time, log
            )
            ending.push_async_callback(broker.stop)
            ending.push_async_callback(spawner.stop, settings.stop_time)
            await broker.start(_broker_path(settings))
            spawner.start()

            # Connections are accepted: whoever waits for that is told.
            _announce(settings, endpoints, pool, state, log)
            reason = await stop

            # No new connection; everybody is told; who does not end in time is ended.
            log.info("stopping", reason=reason, workers=spawner.count)
            spawner.stop_listening()
            broker.say_goodbye()
    log.info("stopped")
    _ignore_further_signals()


def _announce(
    settings: Settings,
    endpoints: Sequence[Endpoint],
    pool: Pool,
    state: State,
    log: FilteringBoundLogger,
) -> None:
    if settings.ready_file:
        write_ready_file(settings.ready_file, endpoints, _broker_path(settings))
    log.info(
        "ready",
        listen=[str(endpoint) for endpoint in endpoints],
        gpus=[room.gpu.id for room in pool.rooms()],
        software=settings.software_gpu is not None,
        ca=state.authority.fingerprint,
    )
    if not pool.rooms():
        log.warning("no_gpus", library=os.fspath(settings.nvml_path))


def _pool(settings: Settings) -> Pool:
    if settings.software_gpu:
        # Its NVML reads these, too.
        os.environ[_SOFTWARE_GPU] = settings.software_gpu
        if settings.software_gpu_state:
            os.environ[_STATE] = os.fspath(settings.software_gpu_state.absolute())
        if settings.software_gpu_sass == "skip":
            os.environ[_SASS] = settings.software_gpu_sass
    inventory = NvmlInventory(
        settings.nvml_path.absolute(),
        software=settings.software_gpu is not None,
        context_overhead_bytes=settings.context_overhead_bytes,
    )
    return Pool(
        inventory.gpus(),
        MemoryStore(),
        time.time,
        reservation_seconds=settings.reservation_time,
        max_sessions=settings.max_sessions,
    )


def _spawner(settings: Settings, state: State, log: FilteringBoundLogger) -> Spawner:
    passed_on = {
        name: os.environ[name] for name in settings.worker_environment if name in os.environ
    }
    limits = Limits(
        connections=settings.max_connections,
        unauthenticated=settings.max_unauthenticated,
        unauthenticated_per_address=settings.max_unauthenticated_per_address,
        # Handshake and hello have a limit each in the worker; this one is for a worker that hangs.
        unauthenticated_seconds=3 * settings.handshake_time,
    )
    program = settings.worker.absolute()
    return Spawner(program, _broker_path(settings), passed_on, limits, state.pseudonyms, log)


def _compile_helper(settings: Settings, log: FilteringBoundLogger) -> CompileHelper | None:
    """Started for software GPUs, unless the administrator runs one or wants none."""
    if not settings.software_gpu or settings.software_gpu_compiler == "own":
        return None
    if _COMPILER in os.environ:
        return None
    helper = CompileHelper(
        settings.compiler_path.absolute(),
        settings.softgpu_cache,
        settings.software_gpu_libraries.absolute() / "libsoftgpu_device.a",
        log,
    )
    helper.start()
    return helper


def _broker_path(settings: Settings) -> Path:
    return settings.broker_path.absolute()


def _check(settings: Settings) -> None:
    longest = max(
        len(os.fsencode(p.absolute())) for p in (settings.broker_path, settings.compiler_path)
    )
    if longest > _MAX_UNIX_PATH:
        raise ConfigError(
            f"the workers' sockets would have a path of {longest} bytes, "
            f"at most {_MAX_UNIX_PATH} work",
            hint="give a shorter --state, or --broker /run/headrace/broker.sock",
        )
    if not settings.driver_path.exists():
        raise ConfigError(
            f"there is no driver library {settings.driver_path}",
            hint="make build"
            if settings.software_gpu
            else "name it with --driver, or lend a software GPU: --software-gpu 1x4GiB",
        )


def _raise_descriptor_limit() -> None:
    """A worker costs three descriptors, and the usual soft limit is 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # then connections fail, one line each
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stop_signal() -> asyncio.Future[str]:
    """Resolves with the name of the signal that ends the daemon."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[str] = loop.create_future()

    def on_signal(number: signal.Signals) -> None:
        if not stop.done():
            stop.set_result(number.name)

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    return stop


def _ignore_further_signals() -> None:
    """A second signal while the interpreter ends must not turn success into a death by signal."""
    for number in _STOP_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def _grant_policy(
    settings: Settings, endpoints: Sequence[Endpoint], helper: CompileHelper | None
) -> GrantPolicy:
    port = endpoints[0].port
    told = settings.advertise or (None if endpoints[0].is_wildcard else endpoints[0].host)
    hosts = [told] if told else []
    hosts += [endpoint.host for endpoint in endpoints if not endpoint.is_wildcard]
    hosts += [*settings.names, socket.gethostname(), "localhost"]
    return GrantPolicy(
        server=str(Endpoint(told, port)) if told else None,
        port=port,
        hosts=tuple(dict.fromkeys(hosts)),
        driver_library=os.fspath(settings.driver_path.absolute()),
        software=settings.software_gpu is not None,
        environment=_driver_environment(settings, helper),
        handshake_seconds=settings.handshake_time,
        idle_seconds=settings.idle_time,
        stop_seconds=settings.stop_time,
        max_connections=settings.max_connections,
    )


def _driver_environment(settings: Settings, helper: CompileHelper | None) -> dict[str, str]:
    """What a worker sets before it loads the driver: what the software GPU is told, or nothing."""
    if not settings.software_gpu:
        return {}
    ours = {name: value for name, value in os.environ.items() if name.startswith(_SOFTWARE_GPU)}
    ours["HEADRACE_SOFTGPU_CACHE"] = os.fspath(settings.softgpu_cache)
    if helper:
        ours[_COMPILER] = helper.setting
    return ours
