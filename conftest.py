"""What all tests share: the broker, and how long Hypothesis may look."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.brokers.fixtures",)

settings.register_profile("ci", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", deadline=None, max_examples=2_000, suppress_health_check=list(HealthCheck))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
