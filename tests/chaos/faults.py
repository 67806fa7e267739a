"""Does a fault to a service, and ends it. That the service is whole again afterwards is looked at by others.

One function for each kind of fault.
"""

import asyncio
import errno
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, assert_never

from muster.drills.service.proxy import Weather
from tests.chaos.network import CLIENTS
from tests.chaos.schedule import Fault, Kind, Party
from tests.chaos.service import BROKER, Muster, Service

FILLER: Final = "filler"
_PIECE: Final = b"\0" * (1 << 16)


async def do(fault: Fault, service: Service, dice: random.Random) -> str:
    """Inject the fault, and end it; return whom it affected. Raises MusterEnded and BrokerFailed."""
    match fault.kind:
        case Kind.KILL:
            return await _kill(fault, service, dice)
        case Kind.PAUSE:
            return await _pause(fault, service, dice)
        case Kind.CUT:
            return await _cut(fault, service, dice)
        case Kind.SLOW:
            return await _slow(fault, service, dice)
        case Kind.FULL:
            with full(service.snapshots):
                await asyncio.sleep(fault.for_s)
            return str(service.snapshots.name)
        case Kind.ROLL:
            return await _roll(service)
        case Kind.ALONE:
            return await _alone(fault, service)
        case Kind.UPGRADE:
            return await _upgrade(service)
        case _ as never:
            assert_never(never)


async def _named(whom: Party, service: Service, dice: random.Random) -> list[str]:
    """Return the names of the affected parties, as the network knows them."""
    match whom:
        case Party.OWNER:
            return [service.owners[0].name]
        case Party.STANDBY:
            return [service.owners[-1].name]
        case Party.EDGE:
            return [service.edges[0].name]
        case Party.BROKER:
            return [BROKER.format(dice.choice(service.cluster.nodes))]
        case Party.COORDINATOR:
            return [BROKER.format(await service.coordinator())]
        case Party.BROKERS:
            return [BROKER.format(node) for node in service.cluster.nodes]
        case Party.CLIENTS:
            return [CLIENTS]
        case Party.SNAPSHOTS | Party.FILE | Party.ALL:
            return []
        case _ as never:
            assert_never(never)


def _muster(name: str, service: Service) -> Muster | None:
    return next((muster for muster in service.musters if muster.name == name), None)


async def _kill(fault: Fault, service: Service, dice: random.Random) -> str:
    (name,) = await _named(fault.whom, service, dice)
    muster = _muster(name, service)
    if muster is not None:
        await service.kill_one(muster)
        await asyncio.sleep(fault.for_s)
        await service.start_one(muster)
    else:
        node = int(name.rpartition("-")[2])
        await service.kill_broker(node)
        await asyncio.sleep(fault.for_s)
        await service.start_broker(node)
    return name


async def _pause(fault: Fault, service: Service, dice: random.Random) -> str:
    (name,) = await _named(fault.whom, service, dice)
    muster = _muster(name, service)
    if muster is not None:
        pid = muster.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            os.kill(pid, signal.SIGCONT)
    else:
        node = int(name.rpartition("-")[2])
        service.cluster.pause(node)
        try:
            await asyncio.sleep(fault.for_s)
        finally:
            service.cluster.resume(node)
    return name


async def _cut(fault: Fault, service: Service, dice: random.Random) -> str:
    assert fault.other is not None
    one, others = await _named(fault.whom, service, dice), await _named(fault.other, service, dice)
    ways = [service.network.way(each, other) for each in one for other in others]
    for way in ways:
        way.cut()
    try:
        await asyncio.sleep(fault.for_s)
    finally:
        for way in ways:
            way.heal()
    return f"{one[0]} from {', '.join(others)}"


async def _slow(fault: Fault, service: Service, dice: random.Random) -> str:
    names = await _named(fault.whom, service, dice)
    ways: list[Weather] = [service.network.way(muster.name, name) for muster in service.musters for name in names]
    for way in ways:
        way.delay_s = fault.ms / 1000
    try:
        await asyncio.sleep(fault.for_s)
    finally:
        for way in ways:
            way.delay_s = 0.0
    return ", ".join(names)


async def _roll(service: Service) -> str:
    """Each process is replaced by one of the other version, one after another: an older one by a newer, and back.

    Once the log is upgraded, an older one would be refused: then each is started again.
    """
    is_older = not service.musters[0].is_older and not service.is_upgraded
    for muster in service.musters:
        await service.stop_one(muster)
        muster.is_older = is_older
        await service.start_one(muster)
    return "to the one that knows no level above 3" if is_older else "to this one"


async def _alone(fault: Fault, service: Service) -> str:
    """All processes are stopped, one serves alone, as a single process does, and all come back."""
    for muster in service.musters:
        await service.stop_one(muster)
    first = service.musters[0]
    await service.start_one(first, alone=True)
    await asyncio.sleep(fault.for_s)
    await service.stop_one(first)
    for muster in service.musters:
        await service.start_one(muster)
    return first.name


async def _upgrade(service: Service) -> str:
    """All processes are stopped, the log is raised to this version's level, as it can be once, and all come back."""
    for muster in service.musters:
        await service.stop_one(muster)
        muster.is_older = False
    if not service.is_upgraded:
        await service.upgrade()
    for muster in service.musters:
        await service.start_one(muster)
    return service.log_topic


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """Its disk, which is a small one of its own."""
    filler = folder / FILLER
    try:
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(_PIECE)
        assert _is_full(folder)
        yield
    finally:
        filler.unlink()


def _is_full(folder: Path) -> bool:
    try:
        (folder / "tried").write_bytes(_PIECE)
    except OSError as error:
        return error.errno == errno.ENOSPC
    finally:
        (folder / "tried").unlink(missing_ok=True)
    return False
