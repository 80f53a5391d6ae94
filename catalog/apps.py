"""Django's view of this app: connects what follows for keys when users change."""

from django.apps import AppConfig


class CatalogConfig(AppConfig):
    name = "catalog"
    verbose_name = "Catalogue"

    def ready(self) -> None:
        from catalog.services import people  # noqa: F401
