from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowmark.wire.records.codec import decode, encode
from lowmark.wire.records.record import BadRecord, RecordKind, Refused, headers_of
from lowmark.wire.records.sink_token import Owner, Token, Told, decode_owner, encode_owner

TOKEN = Token(job="job", checkpoint="c", run=1, batch=-1, part=0, last=False, digest="d")


def read(value: bytes) -> Token:
    token = decode(headers_of(RecordKind.TOKEN), value)
    assert isinstance(token, Token)
    return token


@given(st.dictionaries(st.text(max_size=200), st.builds(Told, st.text(max_size=200), st.integers(0, 2**63 - 1))))
def test_what_has_room_is_read_again(told: dict[str, Told]) -> None:
    """Of many queries some are left out; nothing is changed. Kafka takes 4,096 bytes."""
    job, checkpoint, digest = "j" * 201, "c" * 32, "d" * 32
    token = replace(TOKEN, job=job, checkpoint=checkpoint, digest=digest, run=2**63 - 1, batch=2**63 - 1, told=told)
    written = encode(token).value
    assert len(written) < 4096
    found = read(written)
    assert found.told.items() <= told.items()
    assert replace(found, told={}) == replace(token, told={})


def test_of_many_queries_those_are_kept_that_come_first() -> None:
    many = {f"query-{number:04}": Told("0123456789abcdef", 10**12) for number in range(200)}
    kept = read(encode(replace(TOKEN, told=many)).value).told
    assert list(kept) == sorted(many)[: len(kept)]
    assert len(kept) > 50


@pytest.mark.parametrize(
    ("field", "value"),
    [(b'"told":[]', b'"told":[7]'), (b'"told":[]', b'"told":[["q","law",-1]]'), (b'"batch":-1', b'"batch":-2')],
)
def test_what_another_program_has_left_there_is_no_token(field: bytes, value: bytes) -> None:
    written = encode(TOKEN).value
    assert field in written
    found = decode(headers_of(RecordKind.TOKEN), written.replace(field, value))
    assert isinstance(found, BadRecord)


def test_the_owner_of_a_query_is_written_as_this() -> None:
    owner = Owner("lowmark", "f00d", 4)
    written = '{"buckets":4,"job":"lowmark","stage":"f00d"}'
    assert (encode_owner(owner), decode_owner(written)) == (written, owner)
    for wrong in ("", "[]", '{"job":"x"}', written.replace("4", "-4")):
        with pytest.raises(Refused):
            decode_owner(wrong)
