"""/registry/models/…/plan: how the models of a repository would run on this fleet."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.services import registry
from cluster import selectors
from cluster.domain.board import Board
from cluster.domain.offers import Offer, Plan, plan, variant
from cluster.selectors.speeds import speeds


class PlanIn(serializers.Serializer[Any]):
    """What is asked, in the query."""

    revision = serializers.CharField(max_length=200, required=False)
    quantization = serializers.CharField(max_length=40, required=False)
    file = serializers.CharField(max_length=500, required=False, help_text="A file of the set.")
    file_format = serializers.ChoiceField(["gguf", "safetensors"], required=False)
    context = serializers.IntegerField(  # type: ignore[assignment]  # a field, not the serializer's own
        min_value=1, max_value=1 << 24, required=False, help_text="Tokens of each slot."
    )
    slots = serializers.IntegerField(min_value=1, max_value=256, required=False)
    gpu_class = serializers.CharField(max_length=200, required=False, help_text="Only on cards of this class.")
    tp = serializers.IntegerField(
        min_value=1, max_value=64, required=False, help_text="Only with so many cards of a node."
    )
    projector = serializers.CharField(
        max_length=500, required=False, help_text="Lets it see or hear: auto (default), none, or a file."
    )


class ShareOut(serializers.Serializer[Any]):
    node = serializers.CharField()
    memory = serializers.IntegerField(help_text="Bytes.")
    cards = serializers.DictField(child=serializers.IntegerField(), help_text="Bytes of each card, by UUID.")


class WayOut(serializers.Serializer[Any]):
    """A way that fits the hardware."""

    engine = serializers.CharField()
    gpu_class = serializers.CharField(help_text="Empty: on the processor.")
    gpus_per_node = serializers.IntegerField()
    tp = serializers.IntegerField()
    nodes = serializers.IntegerField(help_text="Of one fabric.")
    fabric = serializers.CharField(help_text="Which it would be now, of several nodes; empty: of one, or in use.")
    context = serializers.IntegerField(help_text="Tokens of each slot.")  # type: ignore[assignment]  # as above
    slots = serializers.IntegerField()
    context_max = serializers.IntegerField(
        help_text="Tokens of each slot that would fit the best node when it is empty."
    )
    memory = serializers.IntegerField(help_text="Bytes of each node's own memory.")
    card_memory = serializers.IntegerField(help_text="Bytes of the cards of each node together.")
    tokens_per_second = serializers.FloatField(
        allow_null=True, help_text="Of one replica, as a bench of this file measured it in this way; null: nobody has."
    )
    at_once = serializers.IntegerField(
        allow_null=True, help_text="Requests at a time that it served in time then; null: not measured."
    )
    free_now = serializers.BooleanField()
    takes = ShareOut(many=True, help_text="What it would take now.")


class VariantOut(serializers.Serializer[Any]):
    name = serializers.CharField()
    format = serializers.CharField()
    quantization = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes, of the projector too.")
    projector = serializers.CharField(help_text="File that lets it see or hear; empty: none.")
    projector_size = serializers.IntegerField(help_text="Bytes of that file.")
    projector_memory = serializers.IntegerField(
        help_text="Bytes that it takes of the memory of cards, or of a node: the file, and what it computes with."
    )
    ways = WayOut(many=True, help_text="The best first.")
    code = serializers.CharField(help_text="Why there is none.")
    message = serializers.CharField()


class PlanOut(serializers.Serializer[Any]):
    repository = serializers.CharField()
    commit = serializers.CharField()
    facts = serializers.DictField(help_text="What the file says of the model.")
    variants = VariantOut(many=True)


class RegistryPlan(viewsets.ViewSet):
    """Plans of repositories."""

    needs = {"retrieve": ("catalog.add_model", "cluster.view_node")}

    @extend_schema(parameters=[PlanIn], responses=PlanOut)
    def retrieve(self, request: Request, ref: str) -> Response:
        """For every quantisation, or set of files, the best ways to run it here, before anything is fetched."""
        asked = PlanIn(data=request.query_params)
        asked.is_valid(raise_exception=True)
        words = asked.validated_data
        seen, shapes = registry.shapes(
            ref, words.get("revision", ""), quantization=words.get("quantization", ""), file=words.get("file", ""),
            format=words.get("file_format", ""), projector=words.get("projector", ""),
        )  # fmt: skip
        board = Board(selectors.world(selectors.database_now()))
        beside = words.get("projector", "")
        found = plan(
            board, [variant(*shape, seen.projectors, beside) for shape in shapes], context=words.get("context", 0),
            slots=words.get("slots", 1), klass=words.get("gpu_class", ""), tp=words.get("tp", 0), speeds=speeds(seen.card.id),
        )  # fmt: skip
        told = {
            "repository": seen.card.id,
            "commit": seen.card.commit,
            "facts": shapes[0][1].as_dict() if shapes else {},
            "variants": [_told(board, item) for item in found],
        }
        return Response(PlanOut(told).data)


def _told(board: Board, found: Plan) -> dict[str, Any]:
    of, refusal = found.variant, found.refusal
    return {
        "name": of.name,
        "format": of.format.value,
        "quantization": of.quantization,
        "size": of.size,
        "projector": of.projector,
        "projector_size": of.facts.projector or 0,
        "projector_memory": (of.facts.projector or 0) + (of.facts.projector_compute or 0),
        "ways": [_way(board, offer) for offer in found.offers],
        "code": refusal.code if refusal else "",
        "message": refusal.message if refusal else "",
    }


def _way(board: Board, offer: Offer) -> dict[str, Any]:
    way = offer.way
    first = board.node(offer.shares[0].node_id) if offer.shares else None
    takes = []
    for share in offer.shares:
        node = board.node(share.node_id)
        takes.append({"node": node.name if node else share.node_id, "memory": share.memory, "cards": dict(share.cards)})
    return {
        "engine": way.engine,
        "gpu_class": way.klass,
        "gpus_per_node": way.gpus_per_node,
        "tp": way.tp,
        "nodes": way.nodes,
        "fabric": first.fabric if first is not None and way.nodes > 1 else "",
        "context": way.context,
        "slots": way.slots,
        "context_max": offer.context,
        "memory": offer.memory,
        "card_memory": offer.card_memory,
        "tokens_per_second": offer.rate or None,
        "at_once": offer.at_once if offer.rate else None,
        "free_now": offer.free_now,
        "takes": takes,
    }
