"""The exams in the admin, so that staff need no shell to see an attempt."""

from django.contrib import admin

from examhall.models import Attempt, Exam, Question


class QuestionInline(admin.TabularInline):
    model = Question
    extra = 0


@admin.register(Exam)
class ExamAdmin(admin.ModelAdmin):
    list_display = ["slug", "title", "bell_at"]
    readonly_fields = ["report_job"]
    inlines = [QuestionInline]


@admin.register(Attempt)
class AttemptAdmin(admin.ModelAdmin):
    list_display = ["public_id", "exam", "candidate", "status", "score"]
    list_filter = ["status", "exam"]
    search_fields = ["public_id", "candidate"]
    readonly_fields = ["status", "score", "grading_job", "submitted_at", "graded_at", "mailed_at"]
    autocomplete_fields = ["student"]
