"""The models that can be asked for."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Q

from catalog.domain import adapters
from catalog.domain.facts import facts_from_dict
from catalog.models.fields import LABEL, class_field, class_known, id_field
from catalog.models.names import MODEL_NAME, check_free, name_field
from catalog.models.providers import Provider
from catalog.models.scopes import Organisation, Project, Team
from catalog.models.versions import Version
from llmgw_site.lib.errors import Refused

MAX_REPLICAS = 10_000
MIN_TIMEOUT, MAX_TIMEOUT = 0.1, 86_400.0
MAX_QUEUE = 100_000
MAX_FALLBACKS = 8
MAX_PRICE = 1_000_000
"""Of a million tokens, in units of the currency."""


def _price(help_text: str) -> models.DecimalField[Any, Any]:
    bounds = [MinValueValidator(0), MaxValueValidator(MAX_PRICE)]
    return models.DecimalField(
        max_digits=13, decimal_places=6, null=True, blank=True, validators=bounds, help_text=help_text
    )


class Model(models.Model):
    """A model of the catalogue: its weights, and how many copies of it shall run; how, its profiles say.

    Its weights are files that an operator put on nodes himself (`weights_path`), or a version that the cluster fetches; of one
    with a version, `facts` and `weights_size` are the version's. An external one has a provider and the provider's name for it
    instead: no weights, no profiles, no copies.
    """

    shares_names = True
    """With adapters and aliases."""
    id = id_field("mod")
    name = name_field("What clients put into `model`.")
    description = models.TextField(blank=True, max_length=4000)
    enabled = models.BooleanField(default=True, help_text="Off: requests are refused, running ones finish.")
    replicas = models.PositiveIntegerField(
        default=1,
        validators=[MaxValueValidator(MAX_REPLICAS)],
        help_text="Copies that shall run whatever the load; 0 with a larger maximum: from the first request on.",
    )
    max_replicas = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(MAX_REPLICAS)],
        help_text="Copies that may run under load; empty: no more than shall run.",
    )
    rest_after = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)],
        help_text="Seconds without a request until a model that runs on demand stops; empty: LLMGW_REST_AFTER.",
    )
    priority_class = class_field(
        "Room of a lower class may be taken for it. Empty: opportunistic where it runs on demand, else standard."
    )
    weights_path = models.CharField(max_length=1024, blank=True, help_text="File on the nodes that run it.")
    version = models.ForeignKey(
        Version,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="models",
        help_text="Weights that the cluster fetches; empty: a file on the nodes.",
    )
    previous = models.ForeignKey(
        Version,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.PROTECT,
        related_name="former_models",
        help_text="What it served before its last update, kept for the way back.",
    )
    weights_size = models.PositiveBigIntegerField(null=True, blank=True, help_text="Bytes; empty: not known.")
    weights_sha256 = models.CharField(
        "SHA-256 of the weights",
        max_length=64,
        blank=True,
        validators=[RegexValidator(r"\A[0-9a-f]{64}\Z", "A SHA-256 is 64 lower-case hex digits.", "sha256")],
    )
    facts = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="What its file says of itself.",
    )
    provider = models.ForeignKey(
        Provider,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="models",
        help_text="Who answers for it; empty: engines of this cluster.",
    )
    provider_model = models.CharField(
        max_length=200,
        blank=True,
        help_text="The provider's own name for it.",
        validators=[RegexValidator(LABEL, "Up to 200 printable characters, no space at its ends.", "name")],
    )
    embeddings = models.BooleanField(default=False, help_text="Answers /v1/embeddings instead of chats.")
    first_byte_timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)],
        help_text="Seconds until an answer must begin; empty: LLMGW_FIRST_BYTE_TIMEOUT.",
    )
    idle_timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)],
        help_text="Seconds that an answer may pause; empty: LLMGW_IDLE_TIMEOUT.",
    )
    queue_length = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MaxValueValidator(MAX_QUEUE)],
        help_text="Requests that wait for room at a node, at most; empty: LLMGW_QUEUE_LENGTH; 0: none does.",
    )
    queue_wait = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)],
        help_text="Seconds that one waits, at most; empty: LLMGW_QUEUE_WAIT.",
    )
    fallbacks = models.JSONField(
        default=list,
        blank=True,
        help_text="Names of models that answer instead while this one cannot, the first choice first.",
    )
    price_input = _price("Of a million tokens that are sent, in LLMGW_CURRENCY; empty: what it costs is not known.")
    price_cached = _price("Of a million of them that come from the engine's cache; empty: as those that are sent.")
    price_output = _price("Of a million tokens that it answers with; 0 for a model that answers with vectors.")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.PROTECT, related_name="models", help_text="Its owner."
    )
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.PROTECT, related_name="models", help_text="Its owner."
    )
    organisation = models.ForeignKey(
        Organisation, null=True, blank=True, on_delete=models.PROTECT, related_name="models", help_text="Its owner."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(name__regex=MODEL_NAME),
                name="catalog_model_name_form",
                violation_error_message="A model's name begins with a letter or digit.",
            ),
            models.CheckConstraint(condition=Q(replicas__lte=MAX_REPLICAS), name="catalog_model_replicas_bounded"),
            models.CheckConstraint(
                condition=Q(provider__isnull=True, provider_model="", version__isnull=True, previous__isnull=True)
                & ~Q(weights_path="")
                | Q(provider__isnull=True, provider_model="", version__isnull=False, weights_path="", weights_sha256="")
                | Q(provider__isnull=False, weights_path="", weights_sha256="", weights_size__isnull=True, replicas=0)
                & Q(version__isnull=True, previous__isnull=True)
                & ~Q(provider_model=""),
                name="catalog_model_weights_or_provider",
                violation_error_message="A model has weights, or a provider and the provider's name for it, not both.",
            ),
            models.CheckConstraint(
                condition=Q(max_replicas__isnull=True)
                | Q(max_replicas__gte=F("replicas"), max_replicas__lte=MAX_REPLICAS),
                name="catalog_model_max_replicas_bounded",
                violation_error_message="A model's maximum of replicas is not below those that shall run.",
            ),
            models.CheckConstraint(
                condition=Q(rest_after__isnull=True) | Q(rest_after__gte=MIN_TIMEOUT, rest_after__lte=MAX_TIMEOUT),
                name="catalog_model_rest_after_bounded",
            ),
            class_known("catalog_model_class_known"),
            models.CheckConstraint(
                condition=Q(team__isnull=True, organisation__isnull=True)
                | Q(project__isnull=True, organisation__isnull=True)
                | Q(project__isnull=True, team__isnull=True),
                name="catalog_model_one_owner",
                violation_error_message="A model has one owner: an organisation, a team or a project.",
            ),
            models.CheckConstraint(
                condition=Q(first_byte_timeout__isnull=True)
                | Q(first_byte_timeout__gte=MIN_TIMEOUT, first_byte_timeout__lte=MAX_TIMEOUT),
                name="catalog_model_first_byte_timeout_bounded",
            ),
            models.CheckConstraint(
                condition=Q(idle_timeout__isnull=True)
                | Q(idle_timeout__gte=MIN_TIMEOUT, idle_timeout__lte=MAX_TIMEOUT),
                name="catalog_model_idle_timeout_bounded",
            ),
            models.CheckConstraint(
                condition=Q(queue_length__isnull=True) | Q(queue_length__lte=MAX_QUEUE),
                name="catalog_model_queue_length_bounded",
            ),
            models.CheckConstraint(
                condition=Q(queue_wait__isnull=True) | Q(queue_wait__gte=MIN_TIMEOUT, queue_wait__lte=MAX_TIMEOUT),
                name="catalog_model_queue_wait_bounded",
            ),
            models.CheckConstraint(
                condition=Q(price_input__isnull=True, price_cached__isnull=True, price_output__isnull=True)
                | Q(price_input__isnull=False, price_output__isnull=False),
                name="catalog_model_price_whole",
                violation_error_message="A price has both sides, what is sent and what is answered: 0 is a price, too.",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        check_free(self, self.name)
        if self.facts:
            self._clean_adapters()

    def _clean_adapters(self) -> None:
        """Other weights must fit its adapters, too: an engine that cannot load one of them does not start."""
        about = facts_from_dict(self.facts)
        for item in apps.get_model("catalog", "Adapter").objects.filter(model_id=self.pk).only("name", "facts"):
            made = adapters.facts_from_dict(item.facts)
            try:
                adapters.vet(made, about, engines=(), scale=1.0, what=f"Its adapter {item.name}", name=self.name)
            except Refused as refused:
                raise ValidationError(f"{refused.message}, or remove that adapter first.") from None

    @property
    def external(self) -> bool:
        """Whether a provider answers for it."""
        return self.provider_id is not None
