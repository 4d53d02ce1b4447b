"""Settings of the shop, none of which knows of queue_kit."""

import os

SECRET_KEY = "of-a-test"
USE_TZ = True
INSTALLED_APPS = ["django_celery_results", "orders", "mailing", "stats"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["SHOP_DATABASE"],
        "OPTIONS": {"timeout": 20, "transaction_mode": "IMMEDIATE"},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = os.environ["SHOP_BROKER_URL"]
CELERY_RESULT_BACKEND = "django-db"
CELERY_RESULT_EXTENDED = True
CELERY_WORKER_SEND_TASK_EVENTS = True
CELERY_TASK_SEND_SENT_EVENT = True
CELERY_TASK_ROUTES = {"mailing.tasks.*": {"queue": "mail"}}
CELERY_BEAT_SCHEDULE = {"tick": {"task": "stats.tasks.tick", "schedule": 1.0}}
