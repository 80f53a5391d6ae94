"""A real Celery worker with its beat, a real Valkey, and kill -9: jobs go on, ticks come, nothing is doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from catalog.models import ApiKey, Model
from cluster.models import Job, JobStep, Replica
from cluster.services import jobs
from tests import processes, tiny
from tests.cluster.rows import Machine, a_model_row, report
from tests.processes import wait_for
from workers import dispatch

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def database_url() -> str:
    """The database of this test, as another process reaches it."""
    facts = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite://{quote(str(facts['NAME']))}"
    return f"postgresql://{facts['USER']}:{facts['PASSWORD']}@localhost:{facts['PORT']}/{facts['NAME']}?host={quote(str(facts['HOST']))}"


@contextmanager
def a_worker(log: Path, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    from llmgw_site.cli.services import worker_command

    environ = {
        **os.environ,
        "DATABASE_URL": database_url(),
        "LLMGW_RECONCILE": "0.3",
        "LLMGW_LOG_STYLE": "text",
        **more,
    }
    environ["DJANGO_SETTINGS_MODULE"] = "llmgw_site.settings"
    with log.open("ab") as output:
        child = subprocess.Popen(
            worker_command(settings.CONFIG), env=environ, stdout=output, stderr=output, cwd=Path(__file__).parents[2]
        )
    try:
        yield child
    finally:
        processes.stop(child, patience=30)


class FiveHandler(BaseHTTPRequestHandler):
    """A client listener whose model says one word."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'data: {"choices": [{"delta": {"content": "Five."}}]}\n\ndata: [DONE]\n\n')

    def log_message(self, *args: object) -> None:
        """Nothing on the test's output."""


@pytest.fixture
def listener() -> Iterator[str]:
    """The port of a client listener that answers."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), FiveHandler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield str(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def log(valkey_url: str, tmp_path: Path) -> Path:
    """Where workers write; asks for the Valkey that they need."""
    return tmp_path / "worker.log"


def test_f62_a_worker_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(log: Path, listener: str) -> None:
    machine = Machine()
    machine.heartbeat()
    gguf = tiny.tiny_gguf()
    assert sys.executable
    with a_worker(log) as first:
        job = jobs.open(kind="serve", subject="m", args={"name": "m", "path": str(gguf)}, actor="t")
        wait_for(lambda: Replica.objects.filter(run=True).exists(), seconds=100, what="the replica to be placed")
        wait_for(lambda: JobStep.objects.get(job=job, name="wait").state == "running", what="the job to wait for it")
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert Job.objects.get().state == "running"
    Job.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))  # the lease has run out, if it was held
    row = Replica.objects.get()
    machine.heartbeat(report(row, "ready"))
    with a_worker(log, LLMGW_PORT=listener):
        wait_for(
            lambda: Job.objects.get().state == "done", seconds=100, what="the next worker to bring the job to its end"
        )
    assert Job.objects.get().result["answer"] == "Five."
    assert not ApiKey.objects.filter(revoked_at__isnull=True).exists()
    assert (Model.objects.count(), Replica.objects.count(), Job.objects.count()) == (1, 1, 1)
    assert "Traceback" not in log.read_text()


def test_ticks_come_by_themselves_and_a_change_is_looked_at_at_once(log: Path) -> None:
    machine = Machine()
    machine.heartbeat()
    a_model_row("unannounced")  # nobody sent a signal about it
    with a_worker(log):
        wait_for(lambda: Replica.objects.count() == 1, seconds=100, what="a tick of beat")
        Model.objects.update(enabled=False)
        dispatch.reconcile_now()
        wait_for(lambda: not Replica.objects.get().run, what="the replica to be stopped")
    assert "Traceback" not in log.read_text()
