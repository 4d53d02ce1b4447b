"""The addresses of ExamHall."""

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path, reverse_lazy

from examhall import examiner, views

app_name = "examhall"
HOME = reverse_lazy("examhall:index")

urlpatterns = [
    path("", views.index, name="index"),
    path("login/", LoginView.as_view(template_name="examhall/login.html", next_page=HOME), name="login"),
    path("logout/", LogoutView.as_view(next_page=HOME), name="logout"),
    path("attempts/<slug:public_id>/", views.paper, name="paper"),
    path("attempts/<slug:public_id>/status", views.status, name="status"),
    path("attempts/<slug:public_id>/answers", views.answers, name="answers"),
    path("attempts/<slug:public_id>/submit", views.submit, name="submit"),
    path("exams/<slug:slug>/rush", examiner.rush, name="rush"),
    path("exams/<slug:slug>/report", examiner.run_report, name="report"),
    path("exams/<slug:slug>/report.csv", examiner.report_file, name="report-file"),
]
