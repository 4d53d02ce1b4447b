"""Measures queue_kit against stock Celery on one machine in one run, since a figure without its peer beside it says nothing."""
