"""The console's sign-in: who tries too often waits (`catalog.domain.signins`)."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from unfold.forms import AuthenticationForm

from catalog.services import signins
from llmgw_site.lib.errors import Refused


class SignIn(AuthenticationForm):  # type: ignore[misc]
    """The form that Django's admin asks for name and password with."""

    def clean(self) -> dict[str, Any]:
        """While somebody has to wait the password is not even looked at."""
        name, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if name is None or not password:
            return super().clean()  # type: ignore[no-any-return]
        address = str(self.request.META.get("REMOTE_ADDR") or "unknown")
        try:
            signins.begin(name=name, address=address, now=timezone.now())
        except Refused as refused:
            raise ValidationError(refused.message, code=refused.code) from None
        cleaned = super().clean()
        signins.succeeded(user=self.get_user(), address=address)
        return cleaned  # type: ignore[no-any-return]
