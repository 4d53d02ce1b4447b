"""A whole project of stock Celery and Django, and its move."""
