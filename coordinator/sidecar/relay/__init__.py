"""The connections of a sidecar: client and broker sockets, frames, back-pressure, the client's principal."""
