"""Settings of the portal, from the environment. One file, grouped by concern."""

from __future__ import annotations

import secrets
from pathlib import Path

from csp.constants import NONE, SELF

from portal.environment import Environment
from portal.logs import FORMATS, LEVELS, logging_settings
from portal.providers import miss_a_way_in, read_providers

env = Environment()
BASE_DIR = Path(__file__).resolve().parent.parent
if (BASE_DIR / ".env").is_file():
    env.read_env(BASE_DIR / ".env")

# --- Core -------------------------------------------------------------------------------------
DEBUG = env.bool("PORTAL_DEBUG", default=False)
# Commands run without one (a key that signs nothing lasting); the servers insist, in checks.py.
SECRET_KEY = env.str("PORTAL_SECRET_KEY", default="") or secrets.token_urlsafe(48)
ALLOWED_HOSTS = env.list("PORTAL_ALLOWED_HOSTS", default=["127.0.0.1", "localhost"])
CSRF_TRUSTED_ORIGINS = env.list("PORTAL_CSRF_TRUSTED_ORIGINS", default=[])
ROOT_URLCONF = "portal.urls"
WSGI_APPLICATION = "portal.wsgi.application"
AUTH_USER_MODEL = "budgets.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# The name of this installation: on every object that it owns on a cluster.
PORTAL_INSTALLATION = env.str("PORTAL_INSTALLATION", default="portal")
# Shows the guided tour of the demo.
PORTAL_DEMO = env.bool("PORTAL_DEMO", default=False)
PORTAL_PUBLIC_URL = env.str("PORTAL_PUBLIC_URL", default="http://127.0.0.1:8000")

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "rest_framework",
    "drf_spectacular",
    "django_htmx",
    "csp",
    "budgets",
    "clusters",
    "portal",
]

MIDDLEWARE = [
    "portal.metrics.observed",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "portal.middleware.nowhere_kept",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "portal.web.session.SignedIn",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "portal.middleware.bounded_body",
    "portal.middleware.read_as_utf8",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "template_partials.loader.Loader",
                    [
                        (
                            "django.template.loaders.cached.Loader",
                            [
                                "portal.web.layout.Loader",
                                "django.template.loaders.app_directories.Loader",
                            ],
                        )
                    ],
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "portal.web.context.shell",
            ],
            "builtins": [
                "portal.web.tags",
                "portal.web.components",
                "template_partials.templatetags.partials",
            ],
        },
    }
]

# --- Database ---------------------------------------------------------------------------------
DATABASES = {
    "default": env.db("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")
    | {"ATOMIC_REQUESTS": False, "CONN_MAX_AGE": env.int("PORTAL_DB_CONN_MAX_AGE", default=60)}
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Several processes write in the demo: WAL and an early write lock keep them out of deadlocks.
    DATABASES["default"]["CONN_MAX_AGE"] = 0
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 20,
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
    # Compiling a page's queries takes longer than running them.
    DATABASES["default"]["OPTIONS"] = {"options": "-c jit=off"}

# --- Celery -----------------------------------------------------------------------------------
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", default="redis://127.0.0.1:6379/0")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
if CELERY_BROKER_URL.startswith("filesystem://"):
    _folder = env.str("CELERY_FILESYSTEM_FOLDER", default=str(BASE_DIR / ".demo" / "broker"))
    CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, object] = {
        "data_folder_in": _folder,
        "data_folder_out": _folder,
        "control_folder": f"{_folder}/control",
    }
else:
    # Longer than the longest task (a shift), or the broker would hand it out twice.
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600}
CELERY_TASK_IGNORE_RESULT = True
if CELERY_BROKER_URL.startswith(("redis://", "rediss://")):
    # Attempts to sign in are counted here, over all processes; no page waits for it.
    CACHES = {
        "default": {
            "BACKEND": "django.core.cache.backends.redis.RedisCache",
            "LOCATION": CELERY_BROKER_URL,
            "KEY_PREFIX": "portal",
            "OPTIONS": {
                "serializer": "portal.cache.JsonSerializer",
                "socket_timeout": 1,
                "socket_connect_timeout": 1,
            },
        }
    }
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_TASK_DEFAULT_QUEUE = "sync"
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULER = "portal.beat:OneOfMany"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Tasks are names and JSON; nobody steers a worker through the broker.
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False

# --- Exports ----------------------------------------------------------------------------------
# Files lie here until they expire; web and worker processes share the folder.
PORTAL_SPOOL_FOLDER = env.str("PORTAL_SPOOL_FOLDER", default=str(BASE_DIR / ".spool"))
PORTAL_EXPORT_DAYS = env.int("PORTAL_EXPORT_DAYS", default=7)
# Who FOCUS files name as provider and issuer of the invoices.
PORTAL_PROVIDER_NAME = env.str("PORTAL_PROVIDER_NAME", default="GPU platform team")
# TrueType files that PDFs are set in: the first that is there, the others for what it lacks.
PORTAL_PDF_FONTS = env.list(
    "PORTAL_PDF_FONTS",
    default=[
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
        "/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf",
    ],
)

# --- Reconcile --------------------------------------------------------------------------------
# A shift hands over after this time; it must stay below the broker's visibility timeout.
SHIFT_SECONDS = env.int("SHIFT_SECONDS", default=600)
LEASE_SECONDS = env.int("LEASE_SECONDS", default=15)
# So many shift workers share the shifts; each needs that part of the slots.
SHIFT_WORKERS = env.int("SHIFT_WORKERS", default=1)
# MiB that the process of one cluster's shifts may have; 0 works all shifts in the worker itself.
SHIFT_MEMORY_MB = env.int("SHIFT_MEMORY_MB", default=2048)
# How long a throwaway ClusterQueue waits for a live Kueue to answer, where none is expected.
KUEUE_PROOF_SECONDS = env.float("KUEUE_PROOF_SECONDS", default=5.0)
# Covered by the unlimited flavor "host" besides cpu, memory and ephemeral-storage.
PORTAL_HOST_RESOURCES = env.list("PORTAL_HOST_RESOURCES", default=[])
# What a job under a hard spend rule meets while no portal answers: "wait" lets new jobs wait for
# the portal's AdmissionCheck; "start" sets none, so that only a queue that is held stops them.
PORTAL_SPEND_CHECK = env.choice("PORTAL_SPEND_CHECK", among=("wait", "start"), default="wait")
# Where the leases lie on every cluster; must exist there.
PORTAL_LEASE_NAMESPACE = env.str("PORTAL_LEASE_NAMESPACE", default="kube-system")
# A file on this server with programs that fetch credentials for ClusterProfiles; no kubeconfig and
# no cluster can name one.
PORTAL_ACCESS_PROVIDERS = env.str("PORTAL_ACCESS_PROVIDERS", default="")
# Fernet keys, newest first: the first encrypts, all decrypt.
PORTAL_CREDENTIAL_KEYS = env.list("PORTAL_CREDENTIAL_KEYS", default=[])
# Ed25519 keys that sign closed months, newest first; see budgets/services/billing/seals.py.
PORTAL_LEDGER_KEYS = env.list("PORTAL_LEDGER_KEYS", default=[])
# Lets an admin name a kubeconfig file on the server instead of pasting it; for local use.
PORTAL_KUBECONFIG_FOLDER = env.str("PORTAL_KUBECONFIG_FOLDER", default="")
# The service account that this server has in the cluster that it runs in: the folder with its token
# and that cluster's authority, and the address of the API server if it is not the one that kubelet
# tells. Empty: this server signs in to no cluster by an account of its own.
PORTAL_OWN_CLUSTER_FOLDER = env.str("PORTAL_OWN_CLUSTER_FOLDER", default="")
PORTAL_OWN_CLUSTER_ADDRESS = env.str("PORTAL_OWN_CLUSTER_ADDRESS", default="")
# Whether a cluster's address may be this server itself (the demo's are), or a private one.
PORTAL_CLUSTER_LOOPBACK = env.bool("PORTAL_CLUSTER_LOOPBACK", default=False)
PORTAL_CLUSTER_PRIVATE = env.bool("PORTAL_CLUSTER_PRIVATE", default=True)

# --- Security ---------------------------------------------------------------------------------
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTHENTICATION_BACKENDS = ["portal.signin.CountedBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Names of OpenID Connect providers whose accounts open the portal; PORTAL_OIDC_NAME_… of each.
PORTAL_PROVIDERS = read_providers(env, env.list("PORTAL_SIGNIN", default=[]))
# For so many days after a sign-in there the API tokens of such an account go on.
PORTAL_SIGNIN_DAYS = env.int("PORTAL_SIGNIN_DAYS", default=30)
# Off: a password opens the one account alone that stays for the day on which no provider answers.
PORTAL_LOCAL_PASSWORDS = env.bool("PORTAL_LOCAL_PASSWORDS", default=True)
PORTAL_BREAK_GLASS = env.str("PORTAL_BREAK_GLASS", default="")
if not PORTAL_LOCAL_PASSWORDS:
    env.faults += miss_a_way_in(PORTAL_PROVIDERS, break_glass=PORTAL_BREAK_GLASS)
# "required": platform admins and finance with a password set up a second factor before all else.
PORTAL_SECOND_FACTOR = env.choice("PORTAL_SECOND_FACTOR", among=("", "required"), default="")
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "login"
CSRF_FAILURE_VIEW = "portal.web.errors.csrf_failure"
# Off where nobody but this machine reads the wire: in the demo and the tests.
_https = env.bool("PORTAL_HTTPS", default=True)
SESSION_COOKIE_SECURE = _https
CSRF_COOKIE_SECURE = _https
SECURE_SSL_REDIRECT = _https
# Whoever asks for health or numbers stands beside the process, before the proxy.
SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$", "^metrics$"]
SECURE_HSTS_SECONDS = 31536000 if _https else 0
# Other hosts of the same domain are not the portal's to decide about.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
# Whoever has it reads /metrics; without one nobody does.
PORTAL_METRICS_TOKEN = env.str("PORTAL_METRICS_TOKEN", default="")
# Where a Celery worker shows the times of its tasks; 0: nowhere.
PORTAL_METRICS_PORT = env.int("PORTAL_METRICS_PORT", default=0)
# Bytes of one request, refused before anything of it is parsed.
PORTAL_BODY_LIMIT = env.int("PORTAL_BODY_LIMIT", default=2 * 1024 * 1024)
DATA_UPLOAD_MAX_MEMORY_SIZE = PORTAL_BODY_LIMIT
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _https else None
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        # Signing out leads to the provider as well.
        "form-action": [SELF, *sorted({row.origin for row in PORTAL_PROVIDERS.values()})],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

# --- API --------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "portal.api.authentication.TokenAuthentication",
        "portal.api.authentication.MachineAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "portal.api.authentication.ScopeAllows",
    ],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    # How many proxies of our own stand in front; only they are believed about a client's address.
    "NUM_PROXIES": env.int("PORTAL_PROXIES", default=0),
    "DEFAULT_THROTTLE_CLASSES": ["portal.fairness.PersonThrottle"],
    "DEFAULT_THROTTLE_RATES": {"login": env.str("PORTAL_LOGIN_RATE", default="10/min")},
    "EXCEPTION_HANDLER": "portal.api.problems.handle",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "GPU budget portal",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    # Choices stay where they are used: fields called state or role mean different sets.
    "POSTPROCESSING_HOOKS": [],
}

# --- Alerts -----------------------------------------------------------------------------------
# smtp://user:password@host:587 and the like; printed to the log where none is set.
EMAIL_CONFIG = env.email_url("PORTAL_EMAIL_URL", default="consolemail://")
vars().update(EMAIL_CONFIG)
DEFAULT_FROM_EMAIL = env.str("PORTAL_EMAIL_FROM", default="GPU budget portal <portal@localhost>")
EMAIL_TIMEOUT = 10
# Lets webhooks reach private addresses, and plain http.
PORTAL_WEBHOOK_PRIVATE = env.bool("PORTAL_WEBHOOK_PRIVATE", default=False)

# --- Audit log --------------------------------------------------------------------------------
# tls://HOST:6514, tcp://HOST:601 or udp://HOST:514 of a syslog that is sent every entry.
PORTAL_AUDIT_SYSLOG = env.str("PORTAL_AUDIT_SYSLOG", default="")
# For so many days entries are shown and sent as files; 0: for ever. They stay in the ledger.
PORTAL_AUDIT_DAYS = env.int("PORTAL_AUDIT_DAYS", default=0)
PORTAL_EVENT_DAYS = env.int("PORTAL_EVENT_DAYS", default=0)

# --- Language, time, files --------------------------------------------------------------------
LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"
STATIC_ROOT = env.str("PORTAL_STATIC_ROOT", default=str(BASE_DIR / "staticfiles"))
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "portal.web.assets.PlotlyFinder",
]
WHITENOISE_USE_FINDERS = DEBUG

# --- Logging ----------------------------------------------------------------------------------
LOG_LEVEL = env.choice("PORTAL_LOG_LEVEL", among=LEVELS, default="INFO")
LOG_FORMAT = env.choice("PORTAL_LOG_FORMAT", among=FORMATS, default="logfmt")
LOGGING = logging_settings(level=LOG_LEVEL, form=LOG_FORMAT)

# What could not be read above, and every name that was asked for; see portal/checks.py.
SETTING_FAULTS = tuple(env.faults)
SETTING_NAMES = frozenset(env.names)
