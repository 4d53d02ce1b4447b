"""A kombu transport whose messages are jobs: claimed, leased and settled by scripts, never parked in a socket."""
