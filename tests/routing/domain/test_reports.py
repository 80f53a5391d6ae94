"""What reports call the projects that they name."""

from __future__ import annotations

from routing.domain.reports import Project, project_names


def test_a_project_is_named_as_far_up_as_it_takes_to_tell_it_from_others() -> None:
    def project(path: str) -> Project:
        organisation, team, name = path.split("/")
        return Project(name=name, team_name=team, organisation_name=organisation)

    paths = ["acme/search/web", "acme/ads/web", "other/search/mail", "acme/search/mail", "acme/search/alone"]
    names = project_names({path: project(path) for path in paths})
    assert names == {
        "acme/search/web": "search/web",
        "acme/ads/web": "ads/web",
        "other/search/mail": "other/search/mail",
        "acme/search/mail": "acme/search/mail",
        "acme/search/alone": "alone",
    }
