"""Django for the jobs of the chaos run: a database for once() and its effects, and for the outbox.

Without it those jobs would need the site's settings, and with them the site's own Celery app in the same process.
"""

import dj_database_url

DATABASES = {"default": dj_database_url.config(conn_max_age=60)}
if "sqlite3" in DATABASES["default"]["ENGINE"]:
    # One writer at a time, and a frozen one holds up the others: they wait, and then try again.
    DATABASES["default"]["OPTIONS"] = {"timeout": 5, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL"}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "queue_kit.django"]
QUEUE_KIT = {"CELERY_APP": "tests.apps.chaos_app.app", "OUTBOX_POLL_MS": 20, "PRODUCTION": False}
SECRET_KEY = "of a run that ends in minutes"
USE_TZ = True
