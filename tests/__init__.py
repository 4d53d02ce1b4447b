"""The tests: a package, because without this file a folder `tests/celery/` would shadow the real `celery`."""
