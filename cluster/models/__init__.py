"""The cluster's tables: who belongs to it, what runs where, what is being done. Re-exports, nothing else."""

from cluster.models.identity import ClusterIdentity
from cluster.models.jobs import Job, JobStep
from cluster.models.nodes import Node
from cluster.models.replicas import Replica

__all__ = ["ClusterIdentity", "Job", "JobStep", "Node", "Replica"]
