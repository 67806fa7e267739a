"""The story of most tests here: one night of the group `orders`."""

from muster.events.causes import Cause
from tests.replay.histories import Script


def a_night() -> Script:
    """Return a night of three static members and a dynamic one, with generations 1 to 4.

    It has a restart, a crash of the coordinator, a fence, an expiry, a superseded rebalance, and a quiet end.
    """
    script = Script().coordinator("coordinator-a:100")
    _begin(script)
    _quiet_hours(script)
    _the_expiry(script)
    _the_interrupted_one(script)
    return script


def _begin(script: Script) -> None:
    script.wait(5_000).created()
    script.start(script.joined(script.member("billing-1", host="/10.0.0.6")), timeout_ms=3_000)
    script.wait(400).advanced(script.joined(script.member("billing-2")))
    script.wait(900).advanced(script.joined(script.member("billing-3", host="/10.0.0.8")))
    script.wait(1_700).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.wait(35).stabilize(
        {
            "billing-1": {"orders": [0, 1, 2, 3]},
            "billing-2": {"orders": [4, 5, 6, 7]},
            "billing-3": {"orders": [8, 9, 10, 11]},
        }
    )


def _quiet_hours(script: Script) -> None:
    script.wait(600_000).advanced(script.replaced("billing-1", Cause.STATIC_RESTART_ABSORBED, host="/10.0.0.6"))
    script.wait(20_000).advanced(script.replaced("billing-3", Cause.STATIC_RESTART_ABSORBED, host="/10.0.0.18"))
    script.wait(60_000).coordinator("coordinator-b:200", took_ms=350)
    impostor = script.member("billing-3", host="/10.0.0.66")
    script.wait(1_000).fenced(impostor, script.of("billing-3"), suppressed=4)


def _the_expiry(script: Script) -> None:
    script.wait(120_000)
    script.start(script.removed(script.of("billing-2"), Cause.SESSION_EXPIRED, silent_ms=45_020))
    newcomer = script.member("aiokafka", static=False, host="/10.0.0.9", client_id="aiokafka-0.14")
    script.wait(250).advanced(script.joined(newcomer, reason="rebalance enforced by user"))
    script.wait(400).advanced(script.rejoined(script.of("billing-1")))
    script.wait(2_500).complete(script.rejoined(script.of("billing-3")))
    script.wait(80).stabilize(
        {
            "billing-1": {"orders": [0, 1, 2, 3]},
            script.of("aiokafka").member_id: {"orders": [4, 5, 6, 7]},
            "billing-3": {"orders": [8, 9, 10, 11]},
        }
    )


def _the_interrupted_one(script: Script) -> None:
    script.wait(3_600_000).start(
        script.removed(
            script.of("aiokafka"),
            Cause.MEMBER_LEFT,
            reason="the consumer is being closed",
            request=True,
        )
    )
    script.wait(500).advanced(script.rejoined(script.of("billing-1")))
    script.wait(700).complete(script.rejoined(script.of("billing-3")))
    script.wait(1_000).start(script.replaced("billing-1", Cause.STATIC_REPLACEMENT_DURING_SYNC, host="/10.0.0.6"))
    script.wait(600).complete(script.rejoined(script.of("billing-3")))
    script.wait(40).stabilize(
        {"billing-1": {"orders": [0, 1, 2, 3, 4, 5]}, "billing-3": {"orders": [6, 7, 8, 9, 10, 11]}}
    )
    script.wait(30_000).advanced(script.replaced("billing-3", Cause.STATIC_RESTART_ABSORBED, host="/10.0.0.18"))
