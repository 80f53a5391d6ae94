"""The product's settings for the measured `web`, with the timing beside them."""

from __future__ import annotations

from llmgw_site.settings import *  # noqa: F403
from llmgw_site.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.bench.heartbeats.timing.Timing"]
