"""Control access to the service: users, sessions and API tokens, the role each route requires, and the login pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hitl._lazy import lazy

if TYPE_CHECKING:
    from hitl.service.web.access.accounts import Accounts as Accounts
    from hitl.service.web.access.caller import Caller as Caller
    from hitl.service.web.access.credentials import must_have_credentials as must_have_credentials
    from hitl.service.web.access.declared import check_declared as check_declared
    from hitl.service.web.access.declared import public as public
    from hitl.service.web.access.guard import no_project as no_project
    from hitl.service.web.access.guard import requires as requires
    from hitl.service.web.access.proxies import Proxies as Proxies
    from hitl.service.web.access.roles import Role as Role

__getattr__, __dir__, __all__ = lazy(__name__)
