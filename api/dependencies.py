"""What routes are handed: the settings, the stores, the front desk."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.jobs.desk import FrontDesk
from api.settings import Settings
from api.workspace import Workspace


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """Everything that the service holds while it runs."""

    settings: Settings
    workspace: Workspace
    desk: FrontDesk


def _service(request: Request) -> Service:
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


CurrentService = Annotated[Service, Depends(_service)]
