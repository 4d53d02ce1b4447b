"""Input that nobody would send on purpose: it may be refused, by name, and ends nothing."""
