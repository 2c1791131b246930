"""Routes: pages, API, liveness and readiness."""

from __future__ import annotations

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from portal.web.session import AdminForm

admin.site.login_form = AdminForm
urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("portal.web.urls")),
    path("api/v1/", include("portal.api.urls")),
    # Django's own page for it counts no guesses, ends no token and writes nothing down.
    path("admin/password_change/", RedirectView.as_view(pattern_name="password_change")),
    path("admin/", admin.site.urls),
]

handler400 = "portal.web.errors.bad_request"
handler403 = "portal.web.errors.forbidden"
handler404 = "portal.web.errors.not_found"
handler500 = "portal.web.errors.server_error"
