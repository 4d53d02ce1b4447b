"""An order is priced in parts at once, summed up, and confirmed by mail."""

from celery import chain, chord, group, shared_task
from mailing.tasks import send

from orders.models import Line


@shared_task
def price(part):
    """Price one part."""
    return part * 10


@shared_task
def total(prices, order):
    """Sum up an order."""
    Line.objects.create(text=f"order {order}: {sum(prices)}")
    return sum(prices)


@shared_task(bind=True, max_retries=3)
def reserve(self, order):
    """Reserve the goods; the first try finds none."""
    if self.request.retries == 0:
        raise self.retry(countdown=0.1)
    Line.objects.create(text=f"order {order}: reserved")
    return order


def place(order, **options):
    """An order in all its steps: a chain with a chord in it."""
    priced = chord(group(price.si(part) for part in (1, 2, 3)), total.s(order))
    return chain(reserve.si(order), priced, send.s(order)).apply_async(**options)
