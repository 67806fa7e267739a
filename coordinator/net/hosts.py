"""Clients' hosts, as Kafka writes them."""

from ipaddress import IPv6Address, ip_address


def java_host(address: str) -> str:
    """Format an address as Java does (M3): a leading slash, and IPv6 in eight groups without leading zeros."""
    plain, percent, zone = address.partition("%")
    parsed = ip_address(plain)
    if not isinstance(parsed, IPv6Address):
        return f"/{plain}"
    if parsed.ipv4_mapped is not None:
        return f"/{parsed.ipv4_mapped}"
    groups = (f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return f"/{':'.join(groups)}{percent}{zone}"
