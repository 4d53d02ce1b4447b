"""The addresses of probes, metrics and jobs: ``path("", include("queue_kit.django.urls"))``."""

from django.urls import path

from queue_kit.django import views

app_name = "queue_kit"
urlpatterns = [
    path("health/live", views.live, name="live"),
    path("health/ready", views.ready, name="ready"),
    path("metrics", views.metrics, name="metrics"),
    path("jobs/<path:job_id>", views.job, name="job"),
]
