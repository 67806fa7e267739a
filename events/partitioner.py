"""Which partition a group lives in: Kafka's own formula (FC1), so that anybody can compute it."""

from array import array
from functools import lru_cache


@lru_cache(maxsize=65_536)
def partition_for(group_id: str, partitions: int) -> int:
    """abs(String.hashCode(group_id)) % partitions, as Java has it: over UTF-16 units, abs(Int32 min) = 0."""
    code = 0
    for unit in array("H", group_id.encode("utf-16-le", "surrogatepass")):
        code = (code * 31 + unit) & 0xFFFF_FFFF
    signed = code - 0x1_0000_0000 if code & 0x8000_0000 else code
    return 0 if signed == -0x8000_0000 else abs(signed) % partitions
