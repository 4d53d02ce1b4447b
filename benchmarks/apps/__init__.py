"""The two systems under test: the same tasks on stock Celery and on queue_kit."""
