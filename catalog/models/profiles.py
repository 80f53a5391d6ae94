"""Ways to run a model."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from catalog.choices import ENGINES
from catalog.models.fields import id_field, label_field
from catalog.models.served import Model

MAX_CONTEXT = 1 << 24
MAX_SLOTS = 256
MAX_THREADS = 1024
MAX_MEMORY = 1 << 50
MAX_SECONDS = 86_400
MAX_TPS = 10_000_000
MAX_CARDS = 64


class Profile(models.Model):
    """One way to run a model. Zero means: whatever the node or the setting says."""

    id = id_field("prof")
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="profiles")
    name = label_field()
    engine = models.CharField(max_length=16, choices=ENGINES, default="llama.cpp")
    enabled = models.BooleanField(default=True)
    priority = models.IntegerField(default=0, help_text="Of the profiles that fit, the highest is used.")
    context = models.PositiveIntegerField(
        default=0,
        validators=[MaxValueValidator(MAX_CONTEXT)],
        help_text="Tokens that one request may have, answer included; 0: 4096, or fewer if the model was trained for fewer.",
    )
    slots = models.PositiveIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_SLOTS)],
        help_text="Requests answered at once.",
    )
    threads = models.PositiveIntegerField(
        default=0, validators=[MaxValueValidator(MAX_THREADS)], help_text="CPU threads; 0: what the node says."
    )
    memory = models.PositiveBigIntegerField(
        default=0, validators=[MaxValueValidator(MAX_MEMORY)], help_text="Bytes to reserve; 0: estimated."
    )
    nodes = models.JSONField(
        default=list, blank=True, help_text="Names of the only nodes that it may run on, a list; empty: any."
    )
    labels = models.JSONField(
        default=dict, blank=True, help_text="Labels that a node must have to run it, name and value; empty: any node."
    )
    gpus_per_node = models.PositiveIntegerField(
        "cards",
        default=0,
        validators=[MaxValueValidator(MAX_CARDS)],
        help_text="Cards of one node, layers divided over them (llama.cpp); 0: the processor.",
    )
    tp = models.PositiveIntegerField(
        "tensor parallel",
        default=0,
        validators=[MaxValueValidator(MAX_CARDS)],
        help_text="Cards of each node, every layer divided over all of them (vLLM).",
    )
    pp = models.PositiveIntegerField(
        "pipeline parallel",
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_CARDS)],
        help_text="Nodes of one fabric that share a replica, one stage each (vLLM).",
    )
    card_classes = models.JSONField(
        default=list, blank=True, help_text="The only classes of cards that it may use, a list; empty: any."
    )
    card_memory = models.PositiveBigIntegerField(
        default=0,
        validators=[MaxValueValidator(MAX_MEMORY)],
        help_text="Bytes of the cards of one node together; 0: estimated.",
    )
    args = models.JSONField("arguments", default=list, blank=True, help_text="Further arguments of the engine, a list.")
    env = models.JSONField("environment", default=dict, blank=True, help_text="Further variables of the engine.")
    start_timeout = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_SECONDS)],
        help_text="Seconds until it must be ready; 0: LLMGW_ENGINE_START_TIMEOUT.",
    )
    drain_timeout = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_SECONDS)],
        help_text="Seconds that running requests may take when it stops; 0: LLMGW_DRAIN_TIMEOUT.",
    )
    measured_tps = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_TPS)],
        help_text="Tokens a second that one replica was measured to give, all its requests together; 0: not measured.",
    )
    measured_concurrency = models.FloatField(
        default=0.0,
        validators=[MinValueValidator(0), MaxValueValidator(MAX_SLOTS)],
        help_text="Requests at once up to which one replica was measured to serve well; 0: not measured.",
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["model__name", "-priority", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "name"],
                name="catalog_profile_name_once",
                violation_error_code="name_taken",
                violation_error_message="This model has a profile of that name.",
            ),
            models.CheckConstraint(
                condition=Q(engine__in=[value for value, _ in ENGINES]), name="catalog_profile_engine_known"
            ),
            models.CheckConstraint(
                condition=Q(slots__gte=1, slots__lte=MAX_SLOTS), name="catalog_profile_slots_bounded"
            ),
            models.CheckConstraint(
                condition=Q(context__lte=MAX_CONTEXT, threads__lte=MAX_THREADS, memory__lte=MAX_MEMORY),
                name="catalog_profile_sizes_bounded",
            ),
            models.CheckConstraint(
                condition=Q(gpus_per_node__lte=MAX_CARDS, tp__lte=MAX_CARDS, pp__gte=1, pp__lte=MAX_CARDS)
                & Q(card_memory__lte=MAX_MEMORY),
                name="catalog_profile_cards_bounded",
            ),
            models.CheckConstraint(
                condition=~Q(engine="llama.cpp") | Q(tp=0, pp=1),
                name="catalog_profile_llama_cpp_by_layers",
                violation_error_message="llama.cpp divides a model by layers: write gpus_per_node instead of tp and pp.",
            ),
            models.CheckConstraint(
                condition=Q(
                    start_timeout__gte=0,
                    start_timeout__lte=MAX_SECONDS,
                    drain_timeout__gte=0,
                    drain_timeout__lte=MAX_SECONDS,
                ),
                name="catalog_profile_timeouts_bounded",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.model.name} {self.name}"
