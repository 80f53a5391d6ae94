"""Reads that span the apps: what overview, jobs and chat show, each in a fixed number of queries, as frozen views."""

from llmgw_site.console.selectors.chat import chat_models, first_project, live_keys
from llmgw_site.console.selectors.cluster import Cluster, cluster
from llmgw_site.console.selectors.jobs import job, jobs, open_jobs
from llmgw_site.console.selectors.requests import Minute, minutes

__all__ = [
    "Cluster",
    "Minute",
    "chat_models",
    "cluster",
    "first_project",
    "job",
    "jobs",
    "live_keys",
    "minutes",
    "open_jobs",
]
