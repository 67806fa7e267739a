"""Every process is stopped in good order and started again, one after the other, as a new version is rolled out."""

from muster.drills.faults.fault import Stage
from muster.drills.service.local import LocalService


async def restart(stage: Stage, service: LocalService) -> None:
    """Restart each process, the next one when the partitions are shared again. Raises ServiceFailed."""
    within_s = stage.plan.within_ms / 1000
    for process in service.processes:
        stage.note(f"SIGTERM to {process.name} (pid {process.pid})", is_fault=True, process=process.name)
        await process.stop()
        stage.note(f"{process.name} has ended in good order", process=process.name, ended="stopped")
        await service.start_again(process)
        stage.note(f"{process.name} serves again (pid {process.pid})", is_fault=True, process=process.name)
        await service.shared(within_s=within_s)
        await stage.answered(f"{process.name} was restarted")
