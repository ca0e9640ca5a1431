"""Whose refusal is a verdict on a message, and whose is not: a commit ends by the first alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.codec.owner_appends import append_at_owners
from broker.codec.staged_commands import NodeStagedTxns
from broker.core.txn.batch_commit import FINAL, AppRecord, CommitState, advanced, started
from broker.model.failure import Refusal, Refused, StreamingCode
from broker.model.ids import PChannelName, TxnId, VChannelName
from broker.model.message import Appended, MessageType, NewMessage
from broker.model.stage import BatchCommit, StagedTxn, TxnCommand

P, V = PChannelName("p_0"), VChannelName("p_0_1v0")


class Node:
    """Refuses a call as a whole, or each message of it."""

    def __init__(self, refusal: Refusal, *, each: bool) -> None:
        self.refusal = refusal
        self.each = each

    async def append(
        self, _: PChannelName, messages: Sequence[NewMessage]
    ) -> Sequence[Appended | Refusal]:
        if self.each:
            return [self.refusal] * len(messages)
        raise Refused(self.refusal.code, self.refusal.cause)

    async def owners(self) -> Mapping[PChannelName, Any]:
        return {P: self}


@pytest.mark.parametrize("code", list(StreamingCode))
async def test_who_refuses_a_call_as_a_whole_has_judged_no_message_of_it(
    code: StreamingCode,
) -> None:
    message = NewMessage(V, MessageType.INSERT, b"", 0)
    refusal = Refusal(code, "why")
    assert await append_at_owners(Node(refusal, each=True).owners, [message]) == [refusal]
    (outcome,) = await append_at_owners(Node(refusal, each=False).owners, [message])
    assert isinstance(outcome, Refusal)
    assert outcome.code is StreamingCode.UNKNOWN
    assert outcome.cause == f"p_0: {code.name} why"


@pytest.mark.parametrize("code", sorted(FINAL))
@pytest.mark.parametrize("state", CommitState)
async def test_a_commit_goes_on_after_a_refused_call_whatever_its_code(
    code: StreamingCode, state: CommitState
) -> None:
    commit = BatchCommit("app", 3, (StagedTxn(V, TxnId(1), 0, 0),))
    attempt = started(AppRecord("app"), commit, 1).attempt
    assert attempt is not None
    owners = Node(Refusal(code, "no request came within 30 s"), each=False).owners
    outcomes = await NodeStagedTxns(owners).send(TxnCommand.COMMIT, commit, commit.txns)
    before = replace(attempt, state=state)
    assert advanced(before, outcomes) == before
