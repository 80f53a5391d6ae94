"""Which node runs what, set once for the whole cluster: one row, or none."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class ClusterSetup(models.Model):
    """The controller tier and a role list per node. No row: every node goes by its own roles."""

    ONLY = "setup"

    id = models.CharField(primary_key=True, max_length=16, default=ONLY, editable=False)
    controller_tier = models.JSONField(default=list, help_text="Roles that every controller runs.")
    nodes = models.JSONField(default=dict, help_text="Node id -> list of roles.")
    version = models.PositiveIntegerField(default=1)
    updated_at = models.DateTimeField(auto_now=True)
    updated_by = models.CharField(max_length=200)

    class Meta:
        verbose_name = verbose_name_plural = "cluster setup"
        constraints = [models.CheckConstraint(condition=Q(id="setup"), name="cluster_setup_one_row")]

    def __str__(self) -> str:
        return f"cluster setup {self.version}"
