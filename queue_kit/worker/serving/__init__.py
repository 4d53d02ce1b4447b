"""What a worker tells over HTTP, on a port of its own."""
