"""A record as a line: always one, always JSON, whatever a name holds."""

import json

from hypothesis import given
from hypothesis import strategies as st

from broker.app.audit.audit_lines import audit_line
from broker.core.audit.audit_record import NOBODY, OK, AuditKind, AuditRecord, Decision

MS = 1_795_705_543_007
FORGED = '","outcome":"ok"}\n{"time":"2026-01-01T00:00:00.000Z","kind":"admin","who":"root"}\n'
TEXT = st.text(st.characters(exclude_categories=()), max_size=50)


def record(who: str = NOBODY, name: str = "flights", user: str = "") -> AuditRecord:
    return AuditRecord(
        MS,
        AuditKind.ADMIN,
        "ddl",
        "/tidemark.v1.Collections/Drop",
        who,
        "10.0.0.1:500",
        Decision.ALLOWED,
        OK,
        user,
        {"collection": name, "vchannels": [name]},
        1.23456,
    )


def test_a_line_says_who_did_what_on_what_from_where_and_how_it_ended() -> None:
    assert json.loads(audit_line(record("app", user="ann"))) == {
        "time": "2026-11-26T15:05:43.007Z",
        "kind": "admin",
        "action": "ddl",
        "method": "/tidemark.v1.Collections/Drop",
        "who": "app",
        "user": "ann",
        "from": "10.0.0.1:500",
        "on": {"collection": "flights", "vchannels": ["flights"]},
        "decision": "allowed",
        "outcome": "ok",
        "ms": 1.235,
    }


def test_what_has_no_value_is_left_out_and_a_sum_has_its_count() -> None:
    own = AuditRecord(
        MS, AuditKind.ADMIN, "start", "", NOBODY, "", Decision.ALLOWED, OK, repeated=7
    )
    line = json.loads(audit_line(own))
    assert line["from"] == "-"
    assert line["repeated"] == 7
    assert not {"user", "method"} & line.keys()


def test_a_name_cannot_forge_a_line() -> None:
    for hostile in (FORGED, "\u2028{}\u2029", "\x00\x1b[2J\r\n", "\ud800", '\\"}', "\u202egnp"):
        line = audit_line(record(hostile, hostile, hostile))
        assert line.count(b"\n") == 1
        assert line.isascii()
        assert line.endswith(b"}\n")
        found = json.loads(line)
        assert (found["who"], found["user"], found["on"]["collection"]) == (hostile,) * 3
        assert found["kind"] == "admin"


@given(TEXT, TEXT, TEXT)
def test_any_text_is_one_line_that_reads_back(who: str, name: str, user: str) -> None:
    line = audit_line(record(who, name, user))
    assert line.count(b"\n") == 1
    assert line.isascii()
    assert not any(byte < 0x20 for byte in line[:-1])
    assert json.loads(line)["on"] == {"collection": name, "vchannels": [name]}
