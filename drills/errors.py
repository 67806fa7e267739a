"""The errors that end a drill, each one clear line.

DrillError        the drill cannot be done, or not go on
  Unusable        an option, or what it names, cannot be used
  NotOurs         a name is somebody else's, and nothing is done to it
  ServiceFailed   the service that is drilled did not do what it has to before or after the fault
"""


class DrillError(Exception):
    """See the module."""


class Unusable(DrillError):
    """See the module."""


class NotOurs(DrillError):
    """See the module."""


class ServiceFailed(DrillError):
    """See the module."""
