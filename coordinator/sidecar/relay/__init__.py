"""The connections of a sidecar: a client's socket and its broker's, frames, back-pressure, the client's principal."""
