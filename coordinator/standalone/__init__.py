"""The standalone server, where clients are connected to Muster alone."""
