"""What the shop remembers."""

from django.db import models


class Line(models.Model):
    """One thing that a task has done."""

    text = models.CharField(max_length=100)
