"""What keeps a group from going on, in words: for each state what to do about it."""

from dataclasses import replace

import pytest

from broker.cli.groups.unsettled_lines import stuck_of, stuck_text, unsettled_lines
from broker.model.groups.consumer_group import DeliveryLimit, GroupKey, GroupSnapshot, GroupView
from broker.model.groups.group_mode import GroupMode
from broker.model.groups.unsettled import FirstUnsettled, HeldByTxn, Unsettled
from broker.model.ids import TimeTick, TxnId

NEVER = TimeTick(0)
FIRST = FirstUnsettled(TimeTick(77), 0xBEEF, Unsettled.LEASED, 3, 61.0, 4, 10, 2047)
GROUP = GroupSnapshot(GroupKey("v", "g"), 30_000, NEVER, (), NEVER, NEVER, mode=GroupMode.BY_KEY)
VIEW = GroupView(GROUP, first=FIRST)
BEGUN = TxnId(1_700_000_000_000 << 18)


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        (Unsettled.WAITING, "or look at the one that owns it and takes nothing"),
        (Unsettled.LEASED, "or let it die: `tidemark group alter --deliveries-max`"),
        (Unsettled.DELAYED, "or let it die: `tidemark group alter --deliveries-max`"),
        (Unsettled.SETTLING, "if that does not end, see `tidemark health`"),
        (Unsettled.HELD, "end the transaction that holds it"),
    ],
)
def test_each_state_of_a_stuck_key_has_its_advice(state: Unsettled, advice: str) -> None:
    (line,) = unsettled_lines(replace(VIEW, first=replace(FIRST, state=state)))
    assert line.startswith(f"v: key hash 0000beef is stuck at tick 77: {state.value}, first")
    assert "3 deliveries, 4 messages wait behind it; `tidemark consume v --from tick:77" in line
    assert line.endswith(advice)
    assert "nothing new" not in line


def test_a_group_with_a_limit_of_deliveries_needs_no_other() -> None:
    limited = replace(VIEW, group=replace(GROUP, limit=DeliveryLimit(3, "v", "trains")))
    assert unsettled_lines(limited)[0].endswith("acknowledge or reject it")


def test_what_is_young_or_holds_nobody_up_is_not_stuck_unless_the_group_is_full() -> None:
    young, alone = replace(FIRST, first_s=59.0), replace(FIRST, behind=0)
    unread = replace(FIRST, first_s=None, key_hash=None, unsettled=2047)
    assert stuck_of(GroupView(GROUP)) is None
    assert stuck_of(replace(VIEW, first=young)) is None
    assert stuck_of(replace(VIEW, first=alone)) is None
    full = replace(VIEW, first=unread)
    assert stuck_of(full) is unread
    (line,) = unsettled_lines(full)
    assert line.startswith("v: a message is stuck at tick 77: a member has it, it was not")
    assert "2,047 messages are unsettled, the limit: nothing new is delivered, of any key" in line
    assert stuck_text([VIEW, full]) == "full, a message stuck never delivered"
    assert stuck_text([replace(VIEW, first=young)]) == ""


def test_a_vchannel_has_no_key() -> None:
    whole = replace(VIEW, group=replace(GROUP, mode=GroupMode.BY_VCHANNEL))
    assert stuck_text([whole]).startswith("the vchannel stuck for 61 s")


def test_what_a_stage_holds_is_told_with_when_it_ends() -> None:
    held = HeldByTxn(BEGUN, 3, "part 1, attempt 2 of batch 3 of app 'a'", TimeTick(BEGUN), 600_000)
    staged, decided = unsettled_lines(
        replace(VIEW, first=None, held=(held, replace(held, stage="", ends_ms=0)))
    )
    assert f"transaction {BEGUN} of part 1, attempt 2 of batch 3 of app 'a' holds 3" in staged
    assert "since 2023-11-14" in staged
    assert "and it is rolled back at 2023-11-14" in staged
    assert decided.endswith("; its commit is being decided")
