"""What a worker does beside its main loop: one role, one thread."""
