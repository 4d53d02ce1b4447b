"""Celery's side: how jobs are sent, run and settled, and the threads that renew, return and trim them."""
