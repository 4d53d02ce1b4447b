"""Django settings of the two demo apps: SQLite and one local Redis unless the environment says otherwise.

For production set DJANGO_DEBUG=0, DJANGO_SECRET_KEY, DJANGO_ALLOWED_HOSTS, DATABASE_URL and REDIS_URL.
"""

import os
from pathlib import Path

import dj_database_url
from kombu import Exchange, Queue

from deploy.environ import flag, required_outside_debug, whole_number, words
from deploy.schedule import BEAT_SCHEDULE
from queue_kit.observe.logs import json_logging

BASE_DIR = Path(__file__).resolve().parent.parent

DEBUG = flag("DJANGO_DEBUG", default=True)
SECRET_KEY = required_outside_debug("DJANGO_SECRET_KEY", DEBUG, in_debug="only-for-a-laptop")
ALLOWED_HOSTS = words("DJANGO_ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = words("DJANGO_CSRF_TRUSTED_ORIGINS", [])

# TLS alone, except where there is none: on a laptop. Probes and scrapers come from inside, over plain HTTP.
HTTPS = flag("DJANGO_HTTPS", default=not DEBUG)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^health/", r"^metrics"]
# An hour, so that a mistake passes; for this host alone, since those beside it may be somebody else's.
SECURE_HSTS_SECONDS = whole_number("DJANGO_HSTS_SECONDS", 3600) if HTTPS else 0
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if flag("DJANGO_BEHIND_PROXY", default=False) else None

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "queue_kit.django",
    "examhall",
    "ticketing",
]

MIDDLEWARE = [
    "queue_kit.django.middleware.CorrelationIdMiddleware",
    "deploy.middleware.ContentSecurityPolicyMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "queue_kit.django.middleware.QueueUnavailableMiddleware",
]

ROOT_URLCONF = "deploy.urls"
WSGI_APPLICATION = "deploy.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "deploy" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

DATABASES = {
    "default": dj_database_url.config(
        default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}", conn_max_age=60, conn_health_checks=True
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Web and workers write to one file. WAL lets them read meanwhile; IMMEDIATE makes a writer queue for the lock when it
    # begins, where the wait is honoured, and not in the middle, where SQLite refuses at once.
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = os.environ.get("REDIS_URL", "redis://localhost:6379/0")
CELERY_TASK_IGNORE_RESULT = True
# One exchange a queue: queues that share one and its routing key would each get a copy of every job.
CELERY_TASK_QUEUES = [
    Queue(name, Exchange(name), routing_key=name)
    for name in ("celery", "grading", "holds", "seat-maps", "email", "reports", "maintenance")
]
CELERY_BEAT_SCHEDULE = BEAT_SCHEDULE
QUEUE_KIT: dict[str, object] = {}
# Django's own tasks, from Django 6 on; queues are those of Celery.
TASKS = {"default": {"BACKEND": "queue_kit.django.tasks_backend.QueueKitBackend", "QUEUES": []}}

# The scoring service is another team's: where it is, and how long an answer may take.
EXAMHALL_SCORING_URL = os.environ.get("EXAMHALL_SCORING_URL", "http://127.0.0.1:8100")
EXAMHALL_SCORING_TIMEOUT_S = whole_number("EXAMHALL_SCORING_TIMEOUT_S", 20)
# When set, these win over the retry policy that the grading job declares.
EXAMHALL_GRADING_ATTEMPTS = whole_number("EXAMHALL_GRADING_ATTEMPTS", None)
EXAMHALL_GRADING_BACKOFF_MS = whole_number("EXAMHALL_GRADING_BACKOFF_MS", None)
# How long after the bell what was sent at the bell still counts.
EXAMHALL_GRACE_S = whole_number("EXAMHALL_GRACE_S", 10)
EXAMHALL_REPORTS_DIR = os.environ.get("EXAMHALL_REPORTS_DIR", str(BASE_DIR / "var" / "reports"))

# On a laptop without a mail server the worker prints what it would send.
EMAIL_HOST = os.environ.get("EMAIL_HOST", "" if DEBUG else "localhost")
EMAIL_BACKEND = f"django.core.mail.backends.{'console' if DEBUG and not EMAIL_HOST else 'smtp'}.EmailBackend"
EMAIL_PORT = whole_number("EMAIL_PORT", 25)
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL = os.environ.get("DEFAULT_FROM_EMAIL", "ExamHall <exams@examhall.example>")

TICKETING_HOLD_MS = whole_number("TICKETING_HOLD_MS", 10 * 60 * 1000)
# The cache in front of the seat maps, told after each drawing; empty where there is none.
TICKETING_EDGE_PURGE_URL = os.environ.get("TICKETING_EDGE_PURGE_URL", "")
TICKETING_EDGE_TIMEOUT_S = whole_number("TICKETING_EDGE_TIMEOUT_S", 5)

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "deploy" / "static"]
STATIC_ROOT = BASE_DIR / "staticfiles"
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = DEBUG

# Lines for people on a laptop, JSON for whatever gathers logs; workers follow, see deploy/celery.py.
JSON_LOGS = flag("DJANGO_JSON_LOGS", default=not DEBUG)
LOGGING = json_logging() if JSON_LOGS else {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {
        name: {"handlers": ["console"], "level": "INFO", "propagate": False}
        for name in ("examhall", "ticketing", "deploy")
    },
}
