"""The catalogue's tables. Re-exports, nothing else. Rows are written by `catalog.services` only."""

from catalog.models.adapters import Adapter
from catalog.models.aliases import Alias, AliasTarget
from catalog.models.budgets import Budget
from catalog.models.events import Event
from catalog.models.identities import Identity, LogoutToken, ProviderSession
from catalog.models.keys import ApiKey
from catalog.models.limits import Limit
from catalog.models.origins import AdapterOrigin, Origin, VersionOrigin
from catalog.models.profiles import Profile
from catalog.models.providers import Provider
from catalog.models.quotas import Quota
from catalog.models.roles import RoleGrant
from catalog.models.scopes import Organisation, Project, Team
from catalog.models.served import Model
from catalog.models.tokens import AdminToken
from catalog.models.versions import Version

__all__ = [
    "Adapter",
    "AdapterOrigin",
    "AdminToken",
    "Alias",
    "AliasTarget",
    "ApiKey",
    "Budget",
    "Event",
    "Identity",
    "Limit",
    "LogoutToken",
    "Model",
    "Organisation",
    "Origin",
    "Profile",
    "Project",
    "Provider",
    "ProviderSession",
    "Quota",
    "RoleGrant",
    "Team",
    "Version",
    "VersionOrigin",
]
