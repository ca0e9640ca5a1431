"""What actors are called when there are many of them."""

import pytest

from broker.core.cluster.actor_kinds import kind_of, pchannel_in, shape_of

P = "by-dev-rootcoord-dml_3"
LOG = f"/root/node/channels/{P}/log"


@pytest.mark.parametrize(
    ("path", "kind", "pchannel", "shape"),
    [
        ("/root", "root", "", "/root"),
        ("/root/coordinator/oracle", "oracle", "", "/root/coordinator/oracle"),
        (f"/root/node/channels/{P}", "channel", P, "/root/node/channels/*"),
        (f"{LOG}/appender", "appender", P, "/root/node/channels/*/log/appender"),
        (f"{LOG}/scanners/scanner-7", "scanner", P, "/root/node/channels/*/log/scanners/*"),
        (f"{LOG}/transactions/77", "transaction", P, "/root/node/channels/*/log/transactions/*"),
        (f"/root/coordinator/reconcilers/{P}", "reconciler", P, "/root/coordinator/reconcilers/*"),
        ("/root/fleet/node-2", "node", "", "/root/fleet/*"),
        ("/root/fleet/2", "fleet", "", "/root/fleet/*"),
        ("/17/18", "actor", "", "/*/*"),
    ],
)
def test_a_name_with_a_number_is_one_of_many(
    path: str, kind: str, pchannel: str, shape: str
) -> None:
    assert (kind_of(path), pchannel_in(path), shape_of(path)) == (kind, pchannel, shape)
