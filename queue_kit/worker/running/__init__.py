"""What happens in the pool, around a task's function."""
