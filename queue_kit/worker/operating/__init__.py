"""What people and commands do to jobs and queues."""
