"""The brain and the map: nodes, replicas, jobs, plans. World -> decide -> plan -> apply.

`selectors.world()` reads tables into frozen views, `domain/` decides, `services/apply.py` writes.
Imports catalog and lib; knows nothing of guard, routing or workers.
"""
