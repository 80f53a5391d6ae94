"""Django's view of the all-in-one start: it has a management command, and tells when the Celery worker is ready."""

from django.apps import AppConfig


class UpConfig(AppConfig):
    name = "llmgw_site.up"
    label = "up"
    verbose_name = "All-in-one start"

    def ready(self) -> None:
        from llmgw_site.up import worker_ready  # noqa: F401
