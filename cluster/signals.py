"""What the cluster tells the floors above, always after the commit. `workers/dispatch.py` is the one receiver.

job_opened     job_id   a job waits to be taken up
job_changed    job_id   a job, one of its steps or its progress is new; pages may want to know
observed       node_id  a heartbeat changed what is known of a node's replicas, or of what it can run them on; `weights`: of the
                        weights that it has
plan_applied   nodes    wanted state changed; `nodes`: ids of those that it changed for, where that is known
members_changed  removed  a node joined, was taken out (`removed`: ids), or has another address or other modules
model_asked    model_id a request waits for a model at rest, or for a place for it
setup_changed  (none)   the cluster setup says something else: nodes should ask for their roles
"""

from __future__ import annotations

from django.dispatch import Signal

job_opened = Signal()
job_changed = Signal()
observed = Signal()
plan_applied = Signal()
model_asked = Signal()
setup_changed = Signal()
members_changed = Signal()
snapshot_asked = Signal()
