"""The addresses of the site: one prefix an app, so that neither app knows the other's."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import TemplateView

urlpatterns = [
    path("", TemplateView.as_view(template_name="index.html"), name="index"),
    path("examhall/", include("examhall.urls")),
    path("ticketing/", include("ticketing.urls")),
    path("admin/", admin.site.urls),
    path("", include("queue_kit.django.urls")),
]
