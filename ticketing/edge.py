"""Tells the cache in front of the site that a seat map was drawn anew.

Without it customers would go on seeing free seats that are taken.
"""

import json
from http.client import HTTPException
from urllib.request import Request, urlopen

from django.conf import settings
from django.urls import reverse

from queue_kit import TransientError
from ticketing.models import Event


def purge_map(event: Event, headers: dict[str, str]) -> None:
    """Have the cache drop the map of an event; does nothing where no cache is configured.

    Any failure is a TransientError: the map is stored by then, and drawing it again changes nothing.
    """
    if not settings.TICKETING_EDGE_PURGE_URL:
        return
    body = json.dumps({"paths": [reverse("ticketing:seat-map", args=[event.pk])]}).encode()
    request = Request(settings.TICKETING_EDGE_PURGE_URL, body, {"Content-Type": "application/json", **headers})
    try:
        with urlopen(request, timeout=settings.TICKETING_EDGE_TIMEOUT_S) as response:
            response.read()
    except (OSError, HTTPException) as failed:
        raise TransientError(f"the cache did not purge the seat map: {failed}") from failed
