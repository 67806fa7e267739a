"""Each group's fold as bytes: state that is open at the end of a build and carried over to the next.

The next fold continues as if it had read all records in one build, so tables built in steps equal those of a full
build. The bytes are pickles, which may only contain listed types: classes of `muster` and a few containers. They can
only be read under the same rules, which a build checks first (`RULES_VERSION`). Anything else raises NotCarriedOver,
and the tables have to be rebuilt.
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
    """The state that an earlier build left cannot be read by these rules."""


class _Unpickler(pickle.Unpickler):
    """Unpickles only the types that the state of a fold consists of."""

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 -- as of pickle
        if (module, name) == ("builtins", "getattr"):
            return _enum_member
        if (module, name) not in _CONTAINERS and not module.startswith(_FOLDERS):
            raise NotCarriedOver(f"{module}.{name} is no part of what a build carries over")
        found = super().find_class(module, name)
        is_ours = isinstance(found, type) and (found.__module__, found.__qualname__) == (module, name)
        if module.startswith(_FOLDERS) and not is_ours:  # e.g. a name that the module has imported
            raise NotCarriedOver(f"{module}.{name} is no class of that module")
        return found


def _enum_member(enum: object, name: str) -> Enum:
    """Replace `getattr`, which Python 3.11.2 (Debian 12) uses to pickle enum members, for that purpose only."""
    if not isinstance(enum, EnumType):
        raise NotCarriedOver(f"getattr of {enum!r} is no part of what a build carries over")
    member: Enum = enum[name]
    return member


def dump(carried: GroupFold | dict[int, Prelude]) -> bytes:
    """Return the bytes of a group's fold, or of the state of the partitions."""
    return pickle.dumps(carried, protocol=5)


def load(state: bytes) -> Any:  # noqa: ANN401 -- what was dumped
    """Read what `dump` wrote. Raises NotCarriedOver."""
    try:
        return _Unpickler(io.BytesIO(state)).load()
    except NotCarriedOver:
        raise
    except Exception as error:  # corrupt bytes can raise any exception
        raise NotCarriedOver(f"what the build before has carried over cannot be read: {error}") from error
