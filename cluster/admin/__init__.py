"""Pages of the console about nodes, join tokens, the cluster setup, replicas and jobs: to read, with actions that call a service."""

from cluster.admin import jobs, membership, nodes, replicas

__all__ = ["jobs", "membership", "nodes", "replicas"]
