"""workers.schedule and workers.celery: what beat does, as data."""

from __future__ import annotations

from importlib import import_module

from django.conf import settings

from workers.celery import QUEUES, app
from workers.schedule import beats


def test_every_beat_names_a_task_that_exists_and_says_why() -> None:
    for module in app.conf.imports:
        import_module(module)
    for beat in beats():
        assert beat.task in app.tasks
        assert beat.why


def test_the_reconciler_looks_as_often_as_the_setting_says() -> None:
    assert app.conf.beat_schedule["reconcile"]["schedule"] == settings.CONFIG.reconcile


def test_queues_have_exchanges_of_their_own() -> None:
    """On a shared exchange and key every message would reach both queues, and be done twice."""
    routes = {(queue.exchange.name, queue.routing_key) for queue in app.conf.task_queues}
    assert routes == {(name, name) for name in QUEUES}


def test_ticks_never_wait_behind_jobs() -> None:
    for name in app.conf.imports:
        import_module(name)
    for task, queue in (("reconcile.reconcile", "ticks"), ("sweep.sweep", "ticks"), ("advance.advance", "jobs")):
        assert app.amqp.router.route({}, f"workers.tasks.{task}")["queue"].name == queue
