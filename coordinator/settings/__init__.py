"""Settings of both modes, and what they name: addresses, ports, certificates."""
