"""The addresses of ExamHall."""

from django.urls import path

from examhall import views

app_name = "examhall"

urlpatterns = [
    path("", views.index, name="index"),
    path("attempts/<slug:public_id>/", views.paper, name="paper"),
    path("attempts/<slug:public_id>/status", views.status, name="status"),
    path("attempts/<slug:public_id>/submit", views.submit, name="submit"),
]
