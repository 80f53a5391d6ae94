"""Paths of the cluster below /api/v1/."""

from __future__ import annotations

from django.urls import path

from cluster.api.headroom import ModelHeadroom
from cluster.api.mirror import Mirror
from cluster.api.offers import RegistryPlan
from cluster.api.orders import ModelOrders
from cluster.api.quotas import Quotas
from cluster.api.resources import ModelResources
from cluster.api.setup import ClusterSetupView
from cluster.api.tokens import JoinTokens
from cluster.api.updates import AdapterUpdates, Updates
from cluster.api.views import Jobs, Nodes, ReplicaList, Replicas

urlpatterns = [
    path("registry/models/<path:ref>/plan", RegistryPlan.as_view({"get": "retrieve"}), name="registry-plan"),
    path("nodes", Nodes.as_view({"get": "list"}), name="nodes"),
    path("nodes/<str:ref>", Nodes.as_view({"get": "retrieve", "delete": "destroy"}), name="node"),
    path("nodes/<str:ref>/cordon", Nodes.as_view({"post": "cordon"}), name="node-cordon"),
    path("nodes/<str:ref>/drain", Nodes.as_view({"post": "drain"}), name="node-drain"),
    path("nodes/<str:ref>/uncordon", Nodes.as_view({"post": "uncordon"}), name="node-uncordon"),
    path("nodes/<str:ref>/label", Nodes.as_view({"post": "label"}), name="node-label"),
    path("nodes/<str:ref>/fabric", Nodes.as_view({"post": "fabric"}), name="node-fabric"),
    path("cluster/setup", ClusterSetupView.as_view({"get": "retrieve", "put": "update"}), name="cluster-setup"),
    path("join-tokens", JoinTokens.as_view({"get": "list", "post": "create"}), name="join-tokens"),
    path("join-tokens/<str:ref>", JoinTokens.as_view({"get": "retrieve", "delete": "destroy"}), name="join-token"),
    path("quotas", Quotas.as_view({"get": "list"}), name="quotas"),
    path("quotas/<path:ref>", Quotas.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}), name="quota"),
    path("mirror", Mirror.as_view({"get": "list", "post": "create"}), name="mirror"),
    path("mirror/<str:ref>/origin", Mirror.as_view({"post": "origin"}), name="mirror-origin"),
    path("mirror/<str:ref>", Mirror.as_view({"get": "retrieve", "delete": "destroy"}), name="mirror-version"),
    path("updates", Updates.as_view({"get": "list"}), name="updates"),
    *(
        path(
            f"models/<path:ref>/adapters/<path:adapter>/{verb}",
            AdapterUpdates.as_view({"post": action}),
            name=f"adapter-{verb}",
        )
        for verb, action in (
            ("check-origin", "check"),
            ("origin", "origin"),
            ("update", "update"),
            ("rollback", "rollback"),
        )
    ),
    *(
        path(f"models/<path:ref>/{verb}", Updates.as_view({"post": action}), name=f"model-{verb}")
        for verb, action in (
            ("check-origin", "check"),
            ("origin", "origin"),
            ("update", "update"),
            ("rollback", "rollback"),
            ("bench", "bench"),
        )
    ),
    path("models/<path:ref>/restart", ModelOrders.as_view({"post": "restart"}), name="model-restart"),
    path("models/<path:ref>/retry", ModelOrders.as_view({"post": "retry"}), name="model-retry"),
    path("models/<path:ref>/scale", ModelOrders.as_view({"post": "scale"}), name="model-scale"),
    path("models/<path:ref>/target", ModelOrders.as_view({"post": "target"}), name="model-target"),
    path("models/<path:ref>/resources", ModelResources.as_view({"get": "retrieve"}), name="model-resources"),
    path("models/<path:ref>/headroom", ModelHeadroom.as_view({"get": "retrieve"}), name="model-headroom"),
    path("models/<path:ref>/why", ModelOrders.as_view({"get": "why"}), name="model-why"),
    path("replicas", ReplicaList.as_view({"get": "list"}), name="replicas"),
    path("replicas/<str:ref>", Replicas.as_view({"get": "retrieve"}), name="replica"),
    path("jobs", Jobs.as_view({"get": "list", "post": "create"}), name="jobs"),
    path("jobs/<str:ref>", Jobs.as_view({"get": "retrieve"}), name="job"),
    path("jobs/<str:ref>/cancel", Jobs.as_view({"post": "cancel"}), name="job-cancel"),
    path("jobs/<str:ref>/retry", Jobs.as_view({"post": "retry"}), name="job-retry"),
]
