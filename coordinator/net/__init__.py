"""The network side of both modes: client connections, frames, heartbeats, back-pressure, memory, limits."""
