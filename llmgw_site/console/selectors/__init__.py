"""Reads that span the apps: what overview, jobs and chat show, each in a fixed number of queries, as frozen views."""

from llmgw_site.console.selectors.adapters import ModelAdapters
from llmgw_site.console.selectors.chat import chat_models, first_project, live_keys
from llmgw_site.console.selectors.cluster import Cluster, cluster
from llmgw_site.console.selectors.jobs import count_open_jobs, job, jobs, open_jobs
from llmgw_site.console.selectors.models import ModelCard, ModelRow, model_card, model_row, replicas_words
from llmgw_site.console.selectors.nodes import MAINTENANCE, Machine, Machines, machines, open_tokens
from llmgw_site.console.selectors.quotas import (
    QuotaField,
    QuotaPage,
    QuotaRow,
    quota_fields,
    quotas,
    scopes,
)
from llmgw_site.console.selectors.requests import Minute, minutes
from llmgw_site.console.selectors.setup import SetupPage, SetupRow, setup
from llmgw_site.console.selectors.weights import ModelWeights

__all__ = [
    "MAINTENANCE",
    "Cluster",
    "Machine",
    "Machines",
    "Minute",
    "ModelAdapters",
    "ModelCard",
    "ModelRow",
    "ModelWeights",
    "QuotaField",
    "QuotaPage",
    "QuotaRow",
    "SetupPage",
    "SetupRow",
    "chat_models",
    "cluster",
    "count_open_jobs",
    "first_project",
    "job",
    "jobs",
    "live_keys",
    "machines",
    "minutes",
    "model_card",
    "model_row",
    "open_jobs",
    "open_tokens",
    "quota_fields",
    "quotas",
    "replicas_words",
    "scopes",
    "setup",
]
