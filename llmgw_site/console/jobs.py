"""The jobs pages: all of them, one of them with its steps, and the buttons that end a job or have it tried again."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from catalog.services import actors
from cluster.services import jobs as service
from llmgw_site.console import access, selectors
from llmgw_site.console.theme import MAY_CHANGE_JOBS, MAY_SEE_JOBS
from llmgw_site.lib.errors import Kind, Refused

PER_PAGE = 25
FILTERS = (
    ("", "All"),
    ("open", "Open"),
    ("done", "Done"),
    ("failed", "Failed"),
    ("waiting", "Waiting"),
    ("cancelled", "Cancelled"),
)


def open_count(request: HttpRequest) -> str:
    """What stands beside *Jobs* in the sidebar: how many have not ended; nothing for none."""
    return str(selectors.count_open_jobs() or "")


def _told(answer: HttpResponse) -> HttpResponse:
    """With the number for the sidebar, which `live.js` keeps current."""
    answer.headers["X-Llmgw-Open-Jobs"] = str(selectors.count_open_jobs())
    return answer


@access.page(*MAY_SEE_JOBS)
def index(request: HttpRequest) -> HttpResponse:
    """All jobs, newest first; `?state=` narrows them, `?page=` turns pages. With `?parts` the list alone."""
    state = request.GET.get("state", "")
    if state not in dict(FILTERS):
        state = ""
    number = request.GET.get("page", "1")
    page = max(1, int(number)) if number.isdecimal() and len(number) < 7 else 1
    jobs, total = selectors.jobs(state=state, offset=(page - 1) * PER_PAGE, limit=PER_PAGE)
    context = {
        "jobs": jobs,
        "total": total,
        "state": state,
        "first": (page - 1) * PER_PAGE + 1,
        "last": (page - 1) * PER_PAGE + len(jobs),
        "newer": _query(state, page - 1) if page > 1 else None,
        "older": _query(state, page + 1) if page * PER_PAGE < total else None,
        "live": _query(state, page, parts=True),
    }
    if "parts" in request.GET:
        return _told(access.fragment(request, "console/jobs_parts.html", **context))
    filters = [(label, _query(value, 1), value == state) for value, label in FILTERS]
    return access.show(request, "console/jobs.html", "Jobs", filters=filters, **context)


def _query(state: str, page: int, *, parts: bool = False) -> str:
    pairs = {"state": state} if state else {}
    return "?" + urlencode({**pairs, **({"page": page} if page > 1 else {}), **({"parts": 1} if parts else {})})


@access.page(*MAY_SEE_JOBS)
def detail(request: HttpRequest, job_id: str) -> HttpResponse:
    """One job and its steps. With `?parts` what changes alone."""
    job = selectors.job(job_id)
    if job is None:
        raise Http404(f"There is no job {job_id}. Jobs that ended long ago are forgotten.")
    context = {"job": job, "may_change": request.user.has_perms(MAY_CHANGE_JOBS)}  # type: ignore[union-attr]
    if "parts" in request.GET:
        return _told(access.fragment(request, "console/job_parts.html", **context))
    return access.show(request, "console/job.html", f"Job: {job.title}", **context)


@access.page(*MAY_SEE_JOBS, *MAY_CHANGE_JOBS)
@require_POST
def act(request: HttpRequest, job_id: str, verb: str) -> HttpResponse:
    """Cancel a job, or have a failed one tried again; a refusal is shown on the job's page."""
    who = actors.of_request(request)
    try:
        if verb == "cancel":
            service.cancel(job_id=job_id, actor=who)
            messages.success(request, "The job was asked to end; it does so at the end of the piece it is at.")
        else:
            service.retry(job_id=job_id, actor=who)
            messages.success(request, "The job goes on at the step that failed.")
    except Refused as refusal:
        if refusal.kind is Kind.NOT_FOUND:
            raise Http404(refusal.message) from None
        messages.error(request, f"{refusal.message} ({refusal.code})")
    return redirect("console:job", job_id)
