"""Trees that cannot be are refused before they are started."""

import pytest

from actors import ChildSpec, SupervisorSpec
from tests.actors.troupe import Player


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_name_must_be_part_of_a_path(name: str) -> None:
    with pytest.raises(ValueError, match="bad name"):
        ChildSpec(name, Player)
    with pytest.raises(ValueError, match="bad name"):
        SupervisorSpec(name)


def test_siblings_must_not_share_a_name() -> None:
    with pytest.raises(ValueError, match="share a name"):
        SupervisorSpec("root", children=(ChildSpec("a", Player), SupervisorSpec("a")))
