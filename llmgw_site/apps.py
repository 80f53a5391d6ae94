"""Django's view of the console: the admin site with our title and pages."""

from django.contrib.admin.apps import AdminConfig


class ConsoleConfig(AdminConfig):
    default_site = "llmgw_site.admin.ConsoleSite"
