"""Django's settings, every value from the one `Config` (llmgw_site/lib/config.py). Grouped by part, no logic of its own."""

from __future__ import annotations

import secrets
import sys
from urllib.parse import urlsplit

from llmgw_site.console import theme as _theme
from llmgw_site.lib import config as _config
from llmgw_site.lib import django_config
from llmgw_site.lib import files as _files
from llmgw_site.lib import logs as _logs
from llmgw_site.lib import packaged as _packaged

CONFIG = _config.load()
"""The settings object of this process; apps read it as `django.conf.settings.CONFIG`."""

_files.private_folder(CONFIG.data)


def _secret_key() -> str:
    """The configured secret, or one made once under the data folder."""
    if CONFIG.secret_key:
        return CONFIG.secret_key
    path = _files.private_folder(CONFIG.data / "secrets") / "secret-key"
    return _files.write_once(path, secrets.token_urlsafe(48).encode()).decode().strip()


# --- core
SECRET_KEY = _secret_key()
DEBUG = CONFIG.debug
_public = urlsplit(CONFIG.client_url)
ALLOWED_HOSTS = django_config.allowed_hosts(CONFIG)
CSRF_TRUSTED_ORIGINS = [CONFIG.client_url]
ROOT_URLCONF = "llmgw_site.urls"
ASGI_APPLICATION = "llmgw_site.asgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APPEND_SLASH = False

INSTALLED_APPS = [
    # `runserver` alone needs daphne, which must stand first; it brings twisted: 30 MB and 0.3 s for every process
    *(["daphne"] if "runserver" in sys.argv else []),
    "unfold.apps.BasicAppConfig",  # the default one would put its own admin site in the place of ours
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "llmgw_site.apps.ConsoleConfig",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "django_prometheus",
    "catalog",
    "cluster",
    "routing",
    "workers",
    "llmgw_site.up",
]
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend", "catalog.services.access.RoleBackend"]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "llmgw_site.console.csp.ConsolePolicy",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_packaged.shipped("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["llmgw_site.console.tags"],
        },
    }
]
STATIC_URL = "/static/"
STATICFILES_DIRS = [_packaged.shipped("static")]
STATIC_ROOT = CONFIG.data / "static"
WHITENOISE_USE_FINDERS = True

# --- the console's look and sidebar
UNFOLD = _theme.UNFOLD
FORMAT_MODULE_PATH = ["llmgw_site.console.formats"]

# --- sign-in and cookies
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
]
# New keys are shown once, in a message: it stays in the browser's cookie and is never written on our side.
MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"
DATA_UPLOAD_MAX_NUMBER_FIELDS = 20_000  # the cluster setup is one form: a box for each role of each node
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
SESSION_COOKIE_NAME = "llmgw_session"
CSRF_COOKIE_NAME = "llmgw_csrf"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = _public.scheme == "https"
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"

# --- stores: the same code paths on SQLite and PostgreSQL
DATABASES = {"default": django_config.database(CONFIG)}
REDIS_URL = CONFIG.redis_url or f"unix://{CONFIG.run / 'valkey.sock'}?db=0"
REDIS_CONNECT_TIMEOUT, REDIS_ANSWER_TIMEOUT = 1.0, 10.0
"""Seconds. An unreachable Valkey must not hold the request that only wanted to wake a worker."""
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        # redis 8: the default 5 s socket timeout would kill idle consumers, and 100 connections break fan-out
        "CONFIG": {
            "hosts": [
                {
                    "address": REDIS_URL,
                    "socket_timeout": None,
                    "socket_connect_timeout": REDIS_CONNECT_TIMEOUT,
                    "max_connections": 5000,
                }
            ],
            "capacity": 2000,
        },
    }
}

# --- Celery: the job rows are the truth, messages only wake
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://").replace("?db=", "?virtual_host=")
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_TIME_LIMIT = 90
CELERY_TASK_SOFT_TIME_LIMIT = 60
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A wake-up that finds no broker gives up at once (kombu would try for 8 s and hold the request that sends it).
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "max_retries": 1,
    "interval_start": 0.0,
    "interval_step": 0.1,
    "interval_max": 0.1,
    "socket_connect_timeout": REDIS_CONNECT_TIMEOUT,
    "socket_timeout": REDIS_ANSWER_TIMEOUT,
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"

# --- admin API
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "llmgw_site.api.AdminTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["llmgw_site.api.ModelPermissions"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["llmgw_site.api.BoundedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "llmgw_site.api.Pages",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "llmgw_site.api.render_exception",
    "PAGE_SIZE": 100,
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "llmgw admin API",
    "DESCRIPTION": "Catalogue, cluster, jobs and usage of an llmgw cluster.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "llmgw_site.schema_nodes.with_node_endpoints",
        "llmgw_site.schema.with_errors",
    ],
    "ENUM_NAME_OVERRIDES": {
        **{f"{name}State": f"cluster.choices.{name.upper()}_STATES" for name in ("Node", "Replica", "Job", "Step")},
        "FileFormat": [("gguf", "gguf"), ("safetensors", "safetensors")],
        "ScopeKind": [(kind, kind) for kind in ("organisation", "team", "project")],
        "ScopeOrKey": [(kind, kind) for kind in ("organisation", "team", "project", "key")],
    },
}

# --- logs go through llmgw_site.lib.logs, set up by the command that starts the process
LOGGING_CONFIG = None
_logs.quiet()
