"""What beat asks for each second."""

from celery import shared_task
from orders.models import Line


@shared_task(ignore_result=True)
def tick():
    """Count."""
    Line.objects.create(text="tick")
