"""Shapes of the catalogue in the admin API. What comes in is strict: an unknown field is refused, not ignored.

Columns and services hold the rules; these shapes hold types and the bounds that keep a value from reaching them at all.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from catalog.choices import CLASSES, ENGINES
from catalog.models import AdminToken, ApiKey, Event, Model, Profile, Provider, Version
from catalog.models.keys import LEAST_PRIORITY, MOST_PRIORITY
from catalog.models.served import MAX_FALLBACKS, MAX_PRICE, MAX_QUEUE
from catalog.services.keys import LONGEST_GRACE

BIG = (1 << 63) - 1


class Strict(serializers.Serializer[Any]):
    """Input. With `partial=True` every field may be left out."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            known = ", ".join(self.fields)
            problem = serializers.ErrorDetail(f"There is no such field; there are {known}.", code="unknown_field")
            raise serializers.ValidationError({str(unknown[0]): [problem]})
        return super().to_internal_value(data)


# --- keys and tokens


class KeyOut(serializers.ModelSerializer[ApiKey]):
    project_name = serializers.CharField(source="project.name", read_only=True)
    user = serializers.CharField(
        source="user.username",
        read_only=True,
        default=None,
        allow_null=True,
        help_text="Whose it is; null: the project's.",
    )
    models = serializers.ListField(
        child=serializers.CharField(), allow_null=True, read_only=True, help_text="Models it may use; null: all."
    )

    class Meta:
        model = ApiKey
        fields = [
            "id", "name", "prefix", "project", "project_name", "user", "models", "priority", "created_by", "created_at", "expires_at",
            "former_prefix", "former_until", "rotated_at", "revoked_at", "last_used_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewKeyOut(KeyOut):
    key = serializers.CharField(read_only=True, help_text="The key itself. Shown this once.")

    class Meta(KeyOut.Meta):
        fields = [*KeyOut.Meta.fields, "key"]
        read_only_fields = fields


class KeyIn(Strict):
    name = serializers.CharField(max_length=100)
    project = serializers.CharField(
        max_length=100, required=False, help_text="Id or name; may be left out where there is just one."
    )
    models = serializers.ListField(
        child=serializers.CharField(max_length=128), allow_null=True, required=False, max_length=1000
    )
    expires_at = serializers.DateTimeField(allow_null=True, required=False)
    user = serializers.CharField(
        max_length=150,
        allow_null=True,
        required=False,
        help_text="Name of the user whose key it is; null: the project's.",
    )
    priority = serializers.IntegerField(
        required=False,
        min_value=LEAST_PRIORITY,
        max_value=MOST_PRIORITY,
        help_text="Where requests wait for room, each step has four times the share of the one below; left out: 0.",
    )


class RotateIn(Strict):
    grace = serializers.FloatField(
        min_value=0,
        max_value=LONGEST_GRACE,
        help_text="Seconds that the present text goes on to be valid; 0: it ends now.",
    )
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class TokenOut(serializers.ModelSerializer[AdminToken]):
    user = serializers.CharField(source="user.get_username", read_only=True)

    class Meta:
        model = AdminToken
        fields = [
            "id", "name", "prefix", "user", "created_by", "created_at", "expires_at", "revoked_at", "last_used_at"
        ]  # fmt: skip
        read_only_fields = fields


class NewTokenOut(TokenOut):
    token = serializers.CharField(read_only=True, help_text="The token itself. Shown this once.")

    class Meta(TokenOut.Meta):
        fields = [*TokenOut.Meta.fields, "token"]
        read_only_fields = fields


class TokenIn(Strict):
    name = serializers.CharField(max_length=100)
    user = serializers.CharField(max_length=150, required=False, help_text="Name of another user; left out: yourself.")
    days = serializers.FloatField(required=False, help_text="How long it is worth something; 90 if left out.")


# --- models and profiles


class ProfileOut(serializers.ModelSerializer[Profile]):
    model_name = serializers.CharField(source="model.name", read_only=True)
    nodes = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Names of the only nodes that it may run on; empty: any.",
    )
    labels = serializers.DictField(
        child=serializers.CharField(), read_only=True, help_text="That a node must have to run it; empty: any node."
    )
    card_classes = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="The only classes of cards that it may use; empty: any.",
    )
    args = serializers.ListField(child=serializers.CharField(), read_only=True)
    env = serializers.DictField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = Profile
        fields = [
            "id", "name", "model", "model_name", "engine", "enabled", "priority", "context", "slots", "threads", "memory",
            "nodes", "labels", "gpus_per_node", "tp", "pp", "card_classes", "card_memory", "args", "env", "start_timeout", "drain_timeout", "measured_tps",
            "measured_concurrency", "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields


class ProfileIn(Strict):
    name = serializers.CharField(max_length=100, required=False, help_text="`default` if left out.")
    engine = serializers.ChoiceField(ENGINES, required=False)
    enabled = serializers.BooleanField(required=False)
    priority = serializers.IntegerField(required=False, min_value=-(1 << 31), max_value=(1 << 31) - 1)
    context = serializers.IntegerField(required=False, min_value=0, max_value=1 << 24)  # type: ignore[assignment]
    slots = serializers.IntegerField(required=False, min_value=1, max_value=256)
    threads = serializers.IntegerField(required=False, min_value=0, max_value=1024)
    memory = serializers.IntegerField(required=False, min_value=0, max_value=1 << 50)
    nodes = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        max_length=1000,
        help_text="Names of the only nodes that it may run on; empty: any.",
    )
    labels = serializers.DictField(
        child=serializers.CharField(max_length=63, allow_blank=True),
        required=False,
        help_text="That a node must have to run it; empty: any node.",
    )
    gpus_per_node = serializers.IntegerField(
        required=False, min_value=0, max_value=64, help_text="llama.cpp: cards of one node; 0: the processor."
    )
    tp = serializers.IntegerField(
        required=False, min_value=0, max_value=64, help_text="vLLM: cards of one node, each layer divided over all."
    )
    pp = serializers.IntegerField(
        required=False, min_value=0, max_value=64, help_text="vLLM: nodes of one replica; 1 in this version."
    )
    card_classes = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        max_length=64,
        help_text="The only classes of cards that it may use, as drivers name them; empty: any.",
    )
    card_memory = serializers.IntegerField(
        required=False, min_value=0, max_value=1 << 50, help_text="Bytes of a node's cards together; 0: estimated."
    )
    args = serializers.ListField(child=serializers.CharField(trim_whitespace=False), required=False)
    env = serializers.DictField(child=serializers.CharField(trim_whitespace=False, allow_blank=True), required=False)
    start_timeout = serializers.FloatField(required=False, min_value=0, max_value=86_400)
    drain_timeout = serializers.FloatField(required=False, min_value=0, max_value=86_400)
    measured_tps = serializers.FloatField(
        required=False, min_value=0, max_value=10_000_000, help_text="Tokens a second of one replica; 0: not measured."
    )
    measured_concurrency = serializers.FloatField(
        required=False,
        min_value=0,
        max_value=256,
        help_text="Requests at once that one replica serves well; 0: not measured.",
    )


class VersionOut(serializers.ModelSerializer[Version]):
    """Weights that the cluster fetches and keeps: the files of one commit."""

    class Meta:
        model = Version
        fields = ["id", "registry", "repository", "commit", "format", "quantization", "size", "first", "projector", "created_at"]  # fmt: skip
        read_only_fields = fields


class ModelOut(serializers.ModelSerializer[Model]):
    project_name = serializers.CharField(source="project.name", read_only=True, default=None, allow_null=True)
    team_name = serializers.CharField(source="team.name", read_only=True, default=None, allow_null=True)
    organisation_name = serializers.CharField(source="organisation.name", read_only=True, default=None, allow_null=True)
    provider_name = serializers.CharField(source="provider.name", read_only=True, default=None, allow_null=True)
    facts = serializers.DictField(read_only=True, help_text="What its file says of itself; empty: not looked at yet.")
    version = VersionOut(
        read_only=True,
        allow_null=True,
        help_text="Its weights, where the cluster fetches them; null: a file on the nodes.",
    )
    previous = VersionOut(
        read_only=True, allow_null=True, help_text="What it served before its last update; a rollback goes back to it."
    )
    profiles = ProfileOut(many=True, read_only=True)

    class Meta:
        model = Model
        fields = [
            "id", "name", "description", "enabled", "replicas", "max_replicas", "rest_after", "priority_class", "weights_path", "weights_size", "weights_sha256", "version", "previous", "facts",
            "embeddings", "first_byte_timeout", "idle_timeout", "queue_length", "queue_wait", "fallbacks", "price_input", "price_cached", "price_output", "provider", "provider_name", "provider_model", "project",
            "project_name", "team", "team_name", "organisation", "organisation_name", "profiles", "created_at", "updated_at",
        ]  # fmt: skip
        read_only_fields = fields

    fallbacks = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text="Models that answer while it cannot, in this order."
    )


def _price(help_text: str) -> serializers.DecimalField:
    return serializers.DecimalField(
        13, 6, required=False, allow_null=True, min_value=0, max_value=MAX_PRICE, help_text=help_text
    )


class ModelIn(Strict):
    name = serializers.CharField(max_length=128)
    weights_path = serializers.CharField(max_length=1024, required=False, help_text="Needed unless it has a provider.")
    description = serializers.CharField(max_length=4000, required=False, allow_blank=True)
    enabled = serializers.BooleanField(required=False)
    replicas = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=10_000,
        help_text="That run whatever the load; 0 with a larger maximum: from the first request on.",
    )
    max_replicas = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=10_000,
        help_text="That may run under load; null: no more than `replicas`.",
    )
    rest_after = serializers.FloatField(
        required=False,
        allow_null=True,
        min_value=0.1,
        max_value=86_400,
        help_text="Seconds without a request until one on demand stops; null: LLMGW_REST_AFTER.",
    )
    priority_class = serializers.ChoiceField(
        CLASSES,
        required=False,
        allow_blank=True,
        help_text="Empty: opportunistic where it runs on demand, else standard.",
    )
    weights_size = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=BIG)
    weights_sha256 = serializers.CharField(max_length=64, required=False, allow_blank=True)
    embeddings = serializers.BooleanField(required=False, help_text="Left out: as its file says.")
    first_byte_timeout = serializers.FloatField(
        required=False, allow_null=True, min_value=0.1, max_value=86_400, help_text="Seconds; null: the node's setting."
    )
    idle_timeout = serializers.FloatField(
        required=False, allow_null=True, min_value=0.1, max_value=86_400, help_text="Seconds; null: the node's setting."
    )
    queue_length = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=MAX_QUEUE,
        help_text="Requests that wait for room at a node, at most; null: the node's setting; 0: none does.",
    )
    queue_wait = serializers.FloatField(
        required=False,
        allow_null=True,
        min_value=0.1,
        max_value=86_400,
        help_text="Seconds that one waits, at most; null: the node's setting.",
    )
    fallbacks = serializers.ListField(
        child=serializers.CharField(max_length=128),
        required=False,
        max_length=MAX_FALLBACKS,
        help_text="Names of models that answer instead while it cannot, the first choice first.",
    )
    price_input = _price("Of a million tokens that are sent, in LLMGW_CURRENCY; null: what it costs is not known.")
    price_cached = _price("Of a million of them from the engine's cache; null: as those that are sent.")
    price_output = _price("Of a million tokens that it answers with; given or left out together with `price_input`.")
    provider = serializers.CharField(
        max_length=100, required=False, help_text="Id or name of the provider that answers for it."
    )
    provider_model = serializers.CharField(max_length=200, required=False, help_text="The provider's own name for it.")
    project = serializers.CharField(
        max_length=100, required=False, allow_null=True, help_text="Id or name of the project that owns it."
    )
    team = serializers.CharField(
        max_length=100, required=False, allow_null=True, help_text="Id or name of the team that owns it."
    )
    organisation = serializers.CharField(
        max_length=100, required=False, allow_null=True, help_text="Id or name of the organisation that owns it."
    )


class NewModelIn(ModelIn):
    profile = ProfileIn(required=False, help_text="Its first profile; left out: llama.cpp with every default.")


# --- providers


class ProviderOut(serializers.ModelSerializer[Provider]):
    key_set = serializers.BooleanField(read_only=True, help_text="Whether a key is kept for it. It is never shown.")

    class Meta:
        model = Provider
        fields = ["id", "name", "url", "key_set", "api_key_file", "enabled", "created_at", "updated_at"]
        read_only_fields = fields


class ProviderIn(Strict):
    name = serializers.CharField(max_length=100)
    url = serializers.CharField(max_length=500, help_text="Base of its OpenAI API, such as https://api.example.com/v1.")
    api_key_file = serializers.CharField(
        max_length=1024, required=False, allow_blank=True, help_text="File with the key on the nodes that run `cloud`."
    )
    enabled = serializers.BooleanField(required=False)


class NewProviderIn(ProviderIn):
    api_key = serializers.CharField(
        max_length=4096, required=False, write_only=True, help_text="Kept sealed and never shown again."
    )


class ProviderKeyIn(Strict):
    key = serializers.CharField(max_length=4096, write_only=True, help_text="Kept sealed and never shown again.")


class WhyIn(Strict):
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class EventOut(serializers.ModelSerializer[Event]):
    before = serializers.DictField(read_only=True, allow_null=True)
    after = serializers.DictField(read_only=True, allow_null=True)

    class Meta:
        model = Event
        fields = [
            "id",
            "at",
            "actor",
            "kind",
            "subject_kind",
            "subject_id",
            "about",
            "message",
            "before",
            "after",
            "why",
        ]
        read_only_fields = fields
