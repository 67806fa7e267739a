"""The standalone server, whose clients connect only to Muster."""
