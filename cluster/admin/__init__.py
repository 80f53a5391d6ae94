"""Pages of the console about nodes, replicas and jobs: to read, with actions that call a service."""

from cluster.admin import jobs, nodes, replicas

__all__ = ["jobs", "nodes", "replicas"]
