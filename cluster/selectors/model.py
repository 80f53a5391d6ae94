"""One model as far as orders and requests need it: a few queries, however large the cluster is."""

from __future__ import annotations

from catalog.models import Model
from cluster.domain.states import ReplicaState
from cluster.domain.types import ModelView, ReplicaView, Standing, state_of
from cluster.models import ClusterIdentity, ModelStanding, Replica
from cluster.selectors import cluster_setup, listening_of, node_view, replica_view, standing_of


def model_view(row: Model, standing: ModelStanding | None) -> ModelView:
    """How it is set and what is remembered of it; its profiles, class and owner stay unread. No query."""
    return ModelView(
        id=row.pk,
        name=row.name,
        enabled=row.enabled,
        base=row.replicas,
        most=row.max_replicas,
        standing=standing_of(standing) if standing else Standing(),
        external=row.external,
    )


def replicas_now(model_id: str, now: float) -> list[tuple[ReplicaView, ReplicaState]]:
    """Its replicas, each in the state that its node leaves it. `now`: Unix time of the database, read before. Three queries;
    one where it has none."""
    rows = list(Replica.objects.filter(model_id=model_id).defer("serve", "log_tail", "why").select_related("node"))
    if not rows:
        return []
    setup = cluster_setup()
    listening = listening_of(ClusterIdentity.objects.filter(id=ClusterIdentity.ONLY).first())
    found = []
    for row in rows:
        node = None if row.node.removed_at is not None else node_view(row.node, setup, listening, now)
        view = replica_view(row)
        found.append((view, state_of(view, (node,))))
    return found
