"""Django's view of the workers: loads the Celery app and connects dispatch to the signals of the floors below."""

from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "workers"
    verbose_name = "Workers"

    def ready(self) -> None:
        from workers import celery, checks, dispatch  # noqa: F401
