"""The master of the cluster, as a program sees it: the values of `log.master`."""

from broker.core.master.component_health import Component, ComponentCode
from broker.model.master.tenancy import ProxyMember, Tenant
from broker.model.master.time_ticks import TickOrigin, TickPolicy, TickReport, TimeTicksView

__all__ = [
    "Component",
    "ComponentCode",
    "ProxyMember",
    "Tenant",
    "TickOrigin",
    "TickPolicy",
    "TickReport",
    "TimeTicksView",
]
