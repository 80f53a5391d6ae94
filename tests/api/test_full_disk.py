"""A database whose disk is full: what is asked for is refused and said, nothing is half done, and all is well once there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from catalog.models import Event, Organisation
from tests.api.calls import a_caller

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("connection.vendor != 'sqlite'", reason="only SQLite can be told that its disk ends here"),
]


def bound(pages: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"PRAGMA max_page_count={pages}")


@pytest.fixture
def full() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        (pages,) = cursor.fetchone()
    bound(pages)
    yield
    bound("1073741823")


def test_what_cannot_be_written_is_refused_whole_and_looking_goes_on(full: None) -> None:
    caller = a_caller()
    for number in range(5000):
        before = Organisation.objects.count(), Event.objects.count()
        answer = caller("POST", "organisations", {"name": f"org {number} {'x' * 60}"})
        if answer.status != 201:
            break
    assert (answer.status, answer.code) == (503, "database_unavailable")
    assert "disk is full" in answer.body["error"]["message"]
    assert (Organisation.objects.count(), Event.objects.count()) == before
    assert caller("GET", "organisations").status == 200
    bound("1073741823")
    assert caller("POST", "organisations", {"name": "once more"}).status == 201
