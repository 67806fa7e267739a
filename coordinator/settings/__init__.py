"""The settings of both modes, and the addresses, ports and certificates that they name."""
