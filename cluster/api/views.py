"""/nodes, /replicas, /jobs. Each write is one service call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.selectors import find
from catalog.services import actors
from cluster import selectors
from cluster.api.serializers import (
    FabricIn,
    JobOut,
    LabelsIn,
    MaintenanceIn,
    NodeOut,
    NoFields,
    ReplicaDetail,
    ReplicaOut,
    Strict,
)
from cluster.api.serving import JobIn
from cluster.services import jobs, labels, maintenance, nodes


class Rows(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Any]):
    """Lists and shows rows; `ref` in a path is an id, or a name where rows have one."""

    lookup_url_kwarg = "ref"
    noun: ClassVar[str]
    by: ClassVar[str] = "pk"
    filters: ClassVar[dict[str, str]] = {}

    def get_object(self) -> Any:
        return find(self.get_queryset(), self.kwargs["ref"], noun=self.noun, by=self.by)

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        asked = {column: self.request.query_params.get(name) for name, column in self.filters.items()}
        return queryset.filter(**{column: value.replace("\x00", "�") for column, value in asked.items() if value})

    @property
    def actor(self) -> str:
        return actors.of_request(self.request)


class Nodes(Rows):
    """Machines of the cluster. Enrolment is the node's own work; an administrator can take a node out."""

    queryset = selectors.nodes()
    serializer_class = NodeOut
    noun, by = "node", "name"
    needs: ClassVar[dict[str, tuple[str, ...]]] = dict.fromkeys(
        ("cordon", "drain", "uncordon", "label", "fabric"), ("cluster.change_node",)
    )

    def get_queryset(self) -> QuerySet[Any]:
        """The clock is read before the rows: read after them, it would count the time in between as a node's silence."""
        if not getattr(self, "swagger_fake_view", False):
            self._clock = selectors.clock()
        return super().get_queryset()

    def get_serializer_context(self) -> dict[str, Any]:
        fake = getattr(self, "swagger_fake_view", False)
        context = dict(super().get_serializer_context())
        if not fake:
            moves = cache(selectors.waiting_to_move)  # one plan for the whole page, only if a row asks for it
            context |= {"clock": self._clock, "setup": selectors.cluster_setup(), "moves": moves}
        return context

    @extend_schema(request=MaintenanceIn)
    def cordon(self, request: Request, ref: str) -> Response:
        """Have nothing new placed on a node, or on one of its cards. What runs there stays."""
        return self._maintain(maintenance.cordon)

    @extend_schema(request=MaintenanceIn)
    def drain(self, request: Request, ref: str) -> Response:
        """Have replicas move away from a node or a card. Each is started elsewhere first, then stopped."""
        return self._maintain(maintenance.drain)

    @extend_schema(request=MaintenanceIn)
    def uncordon(self, request: Request, ref: str) -> Response:
        """End the maintenance of a node, or of one of its cards."""
        return self._maintain(maintenance.uncordon)

    @extend_schema(request=LabelsIn)
    def label(self, request: Request, ref: str) -> Response:
        """Give a node labels, or take some away. Replicas that run there stay."""
        data = self._body(LabelsIn)
        pk = self.get_object().pk
        return self._show(labels.label(actor=self.actor, node_id=pk, changes=data["labels"], why=data["reason"]))

    @extend_schema(request=FabricIn)
    def fabric(self, request: Request, ref: str) -> Response:
        """Say over which fast network a node can share a replica with others."""
        data = self._body(FabricIn)
        pk = self.get_object().pk
        done = labels.fabric(
            actor=self.actor, node_id=pk, name=data["fabric"], address=data["address"], why=data["reason"]
        )  # fmt: skip
        return self._show(done)

    def _body(self, kind: type[Strict]) -> dict[str, Any]:
        shape = kind(data=self.request.data)
        shape.is_valid(raise_exception=True)
        return dict(shape.validated_data)

    def _show(self, row: Any) -> Response:
        return Response(self.get_serializer(self.get_queryset().get(pk=row.pk)).data)

    def _maintain(self, service: Callable[..., Any]) -> Response:
        data = self._body(MaintenanceIn)
        pk = self.get_object().pk
        return self._show(service(actor=self.actor, node_id=pk, why=data["reason"], card=data["card"]))

    @extend_schema(parameters=[OpenApiParameter("reason", description="Stands in the event.")])
    def destroy(self, request: Request, ref: str) -> Response:
        """Take a node out of the cluster: its key is worth nothing from now on, its replicas are placed elsewhere."""
        why = request.query_params.get("reason", "")[:1000].replace("\x00", "\ufffd")
        nodes.remove(node_id=self.get_object().pk, actor=self.actor, why=why)
        return Response(status=204)


@extend_schema(
    parameters=[
        OpenApiParameter("model", description="Name of the model."),
        OpenApiParameter("node", description="Name of the node."),
        OpenApiParameter("state", description="Such as ready."),
    ]
)
class ReplicaList(mixins.ListModelMixin, viewsets.GenericViewSet[Any]):
    """Copies of models on nodes, wanted and observed."""

    queryset = selectors.replicas()
    serializer_class = ReplicaOut
    filters = {"model": "model__name", "node": "node__name", "state": "state"}
    filter_queryset = Rows.filter_queryset


class Replicas(Rows):
    """One copy, with what its node was told and the last words of an engine that did not start."""

    queryset = selectors.replicas()
    serializer_class = ReplicaDetail
    noun = "replica"


class Jobs(Rows):
    """Long pieces of work."""

    queryset = selectors.jobs()
    serializer_class = JobOut
    noun = "job"
    filters = {"kind": "kind", "state": "state", "subject": "subject"}
    needs = {
        "create": ("cluster.add_job", "catalog.add_model", "catalog.change_model"),
        "cancel": ("cluster.change_job",),
        "retry": ("cluster.change_job",),
    }

    @extend_schema(
        parameters=[
            OpenApiParameter("kind", description="Such as serve."),
            OpenApiParameter("state", description="Such as running."),
            OpenApiParameter("subject", description="What it works on, such as a model's name."),
        ]
    )
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=JobIn, responses={201: JobOut})
    def create(self, request: Request) -> Response:
        """Open a job. One of its kind and subject may be open at a time."""
        shape = JobIn(data=request.data)
        shape.is_valid(raise_exception=True)
        args = shape.validated_data["args"]
        job = jobs.open(kind=shape.validated_data["kind"], subject=args["name"], args=dict(args), actor=self.actor)
        return self._show(job.pk, status=201)

    @extend_schema(request=None)
    def cancel(self, request: Request, ref: str) -> Response:
        """Ask for the end of a job; it ends between two pieces of its work."""
        row = self.get_object()
        NoFields(data=request.data).is_valid(raise_exception=True)
        return self._show(jobs.cancel(job_id=row.pk, actor=self.actor).pk)

    @extend_schema(request=None)
    def retry(self, request: Request, ref: str) -> Response:
        """Have a failed job go on at the step that failed."""
        row = self.get_object()
        NoFields(data=request.data).is_valid(raise_exception=True)
        return self._show(jobs.retry(job_id=row.pk, actor=self.actor).pk)

    def _show(self, job_id: str, *, status: int = 200) -> Response:
        return Response(self.get_serializer(self.get_queryset().get(pk=job_id)).data, status=status)
