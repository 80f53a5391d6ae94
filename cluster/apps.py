"""Django's view of this app: what it has to say before the catalogue changes is heard from the start."""

from django.apps import AppConfig


class ClusterConfig(AppConfig):
    name = "cluster"
    verbose_name = "Cluster"

    def ready(self) -> None:
        from cluster.services import fitting, standing  # noqa: F401
