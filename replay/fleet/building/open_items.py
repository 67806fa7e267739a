"""Each group's fold as bytes: what is open at the end of a build, carried over to the next.

The fold goes on from there as if the records before and after had come at once, so a table that was built in steps is
the table of a full build. The bytes are Python's own form of objects (pickle), read with a list of what may be in it:
classes of `muster`, and a few containers. They mean something to the same rules alone, which a build checks before
(`RULES_VERSION`): anything else is NotCarriedOver, and the tables are built anew.
"""

import io
import pickle
from enum import Enum, EnumType
from typing import Any, Final

from muster.replay.fleet.building.fold import GroupFold
from muster.replay.history.items import Prelude

_CONTAINERS: Final = frozenset(
    {("collections", "deque"), ("collections", "defaultdict"), ("builtins", "list"), ("builtins", "int")}
    | {("builtins", name) for name in ("set", "frozenset", "dict", "tuple", "object")}
    | {("copyreg", "_reconstructor"), ("msgspec._utils", "rebuild")}
)
_FOLDERS: Final = ("muster.events.", "muster.replay.")


class NotCarriedOver(Exception):
    """The state that an earlier build has left cannot be read by these rules."""


class _Unpickler(pickle.Unpickler):
    """Makes nothing but the values that a fold consists of."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 -- as of pickle
        if (module, name) == ("builtins", "getattr"):
            return _enum_member
        if (module, name) not in _CONTAINERS and not module.startswith(_FOLDERS):
            raise NotCarriedOver(f"{module}.{name} is no part of what a build carries over")
        found = super().find_class(module, name)
        is_ours = isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name)
        if module.startswith(_FOLDERS) and not is_ours:  # such as something that the module has imported
            raise NotCarriedOver(f"{module}.{name} is no class of that module")
        return found


def _enum_member(enum: object, name: str) -> Enum:
    """Stands in for `getattr`, by which Python 3.11.2 (Debian 12) pickles members of enums; for nothing else."""
    if not isinstance(enum, EnumType):
        raise NotCarriedOver(f"getattr of {enum!r} is no part of what a build carries over")
    member: Enum = enum[name]
    return member


def dump(carried: GroupFold | dict[int, Prelude]) -> bytes:
    """The bytes of a group's fold, or of how the partitions stand."""
    return pickle.dumps(carried, protocol=5)


def load(state: bytes) -> Any:  # noqa: ANN401 -- what was dumped
    """Read what was dumped. Raises NotCarriedOver."""
    try:
        return _Unpickler(io.BytesIO(state)).load()
    except NotCarriedOver:
        raise
    except Exception as error:  # bytes that are no state can ask for anything
        raise NotCarriedOver(f"what the build before has carried over cannot be read: {error}") from error
