"""Other task queues with the same job; each is imported only in the environment that its requirements made."""
