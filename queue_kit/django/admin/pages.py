"""What all pages over Redis share: who may see them, what they say when Redis is away, who did what.

Without it an outage or a forged id would end in a server error, and a replay would have no author.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from queue_kit.django.admin.desk import QueueNotFound
from queue_kit.django.quoting import quoted, unquoted
from queue_kit.errors import ConfigurationError, DeadLetterError, DeadLetterNotFound, JobNotFound, WrongState

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Model]
else:
    _ModelAdmin = admin.ModelAdmin

#: One page: takes the request, and the ids that its address names.
View = Callable[..., HttpResponseBase]
#: Seconds after which an outage that is a failover should be over.
RETRY_AFTER_S: Final = 2
#: What django.contrib.admin keeps of an object's name.
_NAME_MOST: Final = 200


class ReadOnlyAdmin(_ModelAdmin):
    """The admin of what nobody makes, changes or deletes by a form."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class RedisAdmin(ReadOnlyAdmin):
    """The admin of something that lives in Redis: Django lists it and knows its permissions, the pages are its own."""

    def may(self, request: HttpRequest, verb: str) -> bool:
        """Whether the user has the permission for this."""
        return bool(request.user.has_perm(f"queue_kit.{verb}_{self.opts.model_name}"))  # type: ignore[union-attr]

    def require(self, request: HttpRequest, verb: str) -> None:
        """Refuse who may not do this.

        :raises PermissionDenied: 403.
        """
        if not self.may(request, verb):
            raise PermissionDenied(f"You have no permission to {verb} {self.opts.verbose_name_plural}.")

    # -- addresses ----------------------------------------------------------------------------------------------------

    def route(self, route: str, view: View, name: str) -> URLPattern:
        """One address, for those who may see what is here. Ids in it are quoted."""
        return path(
            route, self.admin_site.admin_view(self._guarded(view)), name=f"queue_kit_{self.opts.model_name}_{name}"
        )

    def address(self, name: str, *ids: str) -> str:
        """The address of one of these pages."""
        return reverse(f"{self.admin_site.name}:queue_kit_{self.opts.model_name}_{name}", args=[*map(quoted, ids)])

    def _guarded(self, view: View) -> Callable[..., HttpResponseBase]:
        def answer(request: HttpRequest, **ids: str) -> HttpResponseBase:
            try:
                self.require(request, "view")
                return view(request, **{name: unquoted(value) for name, value in ids.items()})
            except PermissionDenied as error:
                return self.say(request, 403, "Not allowed", str(error))
            except (DeadLetterNotFound, JobNotFound, QueueNotFound) as error:
                return self.say(request, 404, "Not found", str(error))
            except (DeadLetterError, WrongState) as error:
                return self.say(request, 409, "Left as it is", str(error))
            except ConfigurationError as error:
                return self.say(request, 503, "Not set up", str(error))
            except (RedisError, OperationalError):
                return self._unavailable(request)

        return answer

    # -- pages --------------------------------------------------------------------------------------------------------

    def show(
        self, request: HttpRequest, template: str, title: str, *, status: int = 200, **context: Any
    ) -> TemplateResponse:
        """A page in the admin's frame."""
        frame = {**self.admin_site.each_context(request), "opts": self.opts, "title": title}
        return TemplateResponse(request, f"queue_kit/{template}", {**frame, **context}, status=status)

    def say(self, request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
        """A page that only says something."""
        return self.show(request, "message.html", title, status=status, text=text)

    def ask(
        self, request: HttpRequest, title: str, text: str, carried: list[tuple[str, str]], back: str
    ) -> HttpResponse:
        """A page that asks whether the same is really to be done."""
        return self.show(request, "sure.html", title, text=text, carried=[*carried, ("sure", "on")], back_to=back)

    def back(self, address: str) -> HttpResponseRedirect:
        return HttpResponseRedirect(address)

    def _unavailable(self, request: HttpRequest) -> HttpResponse:
        text = "The queue does not answer just now. Nothing is lost; what was done before stands in the history."
        page = self.say(request, 503, "Queue not available", text)
        page.headers["Retry-After"] = str(RETRY_AFTER_S)
        return page

    # -- who did what -------------------------------------------------------------------------------------------------

    def note(self, request: HttpRequest, ids: Iterable[str], flag: int, what: str) -> None:
        """Write into the admin's log that the user has done this, an entry for each."""
        kind = ContentType.objects.get_for_model(self.model, for_concrete_model=False)
        entries = [
            LogEntry(
                user_id=request.user.pk, content_type=kind, object_id=_storable(i), object_repr=_storable(i)[:_NAME_MOST],
                action_flag=flag, change_message=_storable(what),
            )
            for i in ids
        ]  # fmt: skip
        LogEntry.objects.bulk_create(entries, batch_size=500)

    def history(self, object_id: str, most: int = 20) -> list[LogEntry]:
        """What the admin's log says of one object, the latest first."""
        kind = ContentType.objects.get_for_model(self.model, for_concrete_model=False)
        found = LogEntry.objects.filter(content_type=kind, object_id=_storable(object_id)).select_related("user")
        return list(found.order_by("-action_time")[:most])


def _storable(text: str) -> str:
    # PostgreSQL takes no NUL in a text.
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
