"""The cluster's tables: who belongs to it, what runs where, what is being done. Re-exports, nothing else."""

from cluster.models.identity import ClusterIdentity
from cluster.models.jobs import Job, JobStep
from cluster.models.measurements import Measurement, Throughput
from cluster.models.membership import Certificate, JoinToken, PublishedMap
from cluster.models.nodes import Node
from cluster.models.replicas import Replica, ReplicaPart
from cluster.models.setup import ClusterSetup
from cluster.models.standing import ModelStanding

__all__ = [
    "Certificate",
    "ClusterIdentity",
    "ClusterSetup",
    "Job",
    "JobStep",
    "JoinToken",
    "Measurement",
    "ModelStanding",
    "Node",
    "PublishedMap",
    "Replica",
    "ReplicaPart",
    "Throughput",
]
