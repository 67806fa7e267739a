"""A process is killed, as `kill -9` does, and does not come back: the others take its partitions over."""

from muster.drills.faults.fault import Stage, busiest
from muster.drills.service.local import LocalService


async def take_over(stage: Stage, service: LocalService) -> None:
    """Kill the process that coordinates most groups. Raises ServiceFailed."""
    process = busiest(stage, service)
    pid, partitions = process.pid, len(service.owned_by(process))
    stage.note(
        f"kill -9 of {process.name} (pid {pid}), which owned {partitions} partitions",
        is_fault=True,
        process=process.name,
        ended="killed",
    )
    await process.kill()
    await service.shared(within_s=stage.plan.within_ms / 1000)
    await stage.answered(f"{process.name} was killed")
