"""Every operation of the admin API, fed with what its schema allows and what it does not: never a 500, always an envelope."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
import yaml
from django.conf import settings as django
from django.core.management import call_command
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catalog.models import Model
from cluster.models import Replica
from cluster.services import quotas
from llmgw_site.schema_nodes import PATHS
from tests.api.calls import Caller, a_caller
from tests.cluster.rows import Machine
from tests.processes import free_port
from tests.rows import a_key, a_model, a_project

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore")]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def operations() -> Iterator[Any]:
    out = io.StringIO()
    call_command("spectacular", stdout=out)
    schema: Any = schemathesis.openapi.from_dict(yaml.safe_load(out.getvalue()))
    for found in schema.get_all_operations():
        operation = found.ok()
        if "/agent/" not in operation.path and operation.path not in PATHS:  # those are no Django
            yield operation


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Caller:
    """Beside the catalogue's rows a node with a replica on it, and a quota: what orders and quotas are about."""
    nowhere = replace(django.CONFIG, registry=f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(django, "CONFIG", nowhere)  # no test asks a registry out there
    project = a_project()
    a_key("bot", project=project)
    model = a_model(project=project)
    machine = Machine("n1")
    machine.heartbeat()
    Replica.objects.create(model=model, profile=model.profiles.get(), node=machine.node, slot=0, serve={}, digest="-")
    quotas.put(actor="test", scope=project, guarantee={}, limit={"cores": 2, "cards": {"L4": 1}})
    return a_caller()


def send(caller: Caller, case: Any, ref: str | None, junk: Any) -> None:
    """One request; whatever it changed is rolled back."""
    path = case.path.removeprefix("/api/v1/")
    for name, value in (case.path_parameters or {}).items():
        path = path.replace(f"{{{name}}}", quote(ref if ref is not None else str(value), safe=""))
    query = urlencode({name: str(value) for name, value in (case.query or {}).items()})
    body = case.body if isinstance(case.body, dict) else None
    if isinstance(junk, dict):
        body = {**(body or {}), **junk}
    with transaction.atomic():
        answer = caller(case.method, f"{path}?{query}" if query else path, body)
        transaction.set_rollback(True)
    assert answer.status < 500 or answer.code != "internal_error", (case.method, path, body, answer)
    if answer.status >= 400:
        assert answer.code


def run(caller: Caller, examples: int) -> None:
    model = Model.objects.get()
    replica = Replica.objects.get()
    refs = st.sampled_from(
        [None, model.pk, "tiny", "main", "project:main", "bot", "default", model.profiles.get().pk, replica.pk, "n1"]
    )
    for operation in operations():

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), ref=refs, junk=JUNK)
        def attempt(case: Any, ref: str | None, junk: Any) -> None:
            send(caller, case, ref, junk)

        attempt()


@pytest.mark.slow
def test_no_operation_breaks(caller: Caller) -> None:
    run(caller, 2)


@pytest.mark.prove
def test_prove_that_no_operation_breaks(caller: Caller) -> None:
    run(caller, 100)
