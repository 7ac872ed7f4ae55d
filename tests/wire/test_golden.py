"""The bytes of every form of record. A change here is a change of the wire: another WIRE_VERSION, other topics.

LOWMARK_UPDATE_GOLDEN=1 writes the file anew.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from lowmark.wire.records.codec import Record, decode, encode
from lowmark.wire.records.partials import PartialBatch, encode_batch
from lowmark.wire.records.record import RecordKind, WireRecord
from lowmark.wire.records.result_rows import ResultRowsRecord
from lowmark.wire.rows.compression import Compression
from tests.wire.examples import EXAMPLES
from tests.wire.strategies import PARTIALS

FILE = Path(__file__).parent / "golden" / "records.json"


def written_down(record: WireRecord) -> dict[str, object]:
    arrow = b"ARROW" in record.value or record.value[:4] == b"\xff\xff\xff\xff"
    value = {"arrow": base64.b64encode(record.value).decode()} if arrow else {"text": record.value.decode()}
    return {
        "key": None if record.key is None else record.key.decode(),
        "headers": {name: content.decode() for name, content in record.headers},
        **value,
    }


def bytes_of(record: Record) -> WireRecord:
    """Batches as they are before compression, whose bytes may differ by the version of its library."""
    return encode_batch(record, Compression.NONE) if isinstance(record, PartialBatch) else encode(record)


if os.environ.get("LOWMARK_UPDATE_GOLDEN"):
    forms = {name: json.dumps(written_down(bytes_of(record)), ensure_ascii=False) for name, record in EXAMPLES.items()}
    lines = [f"{json.dumps(name)}: {form}" for name, form in forms.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

GOLDEN = json.loads(FILE.read_text(encoding="utf-8"))


def equal(one: object, other: object) -> bool:
    """Record equality, rows by their values."""
    if isinstance(one, PartialBatch) and isinstance(other, PartialBatch):
        fields = ("origin", "sequence", "tuples", "late")
    elif isinstance(one, ResultRowsRecord) and isinstance(other, ResultRowsRecord):
        fields = ("generation",)
    else:
        return one == other
    same = all(getattr(one, field) == getattr(other, field) for field in fields)
    return same and bool(one.rows.equals(other.rows, check_metadata=True))


def test_every_form_is_pinned() -> None:
    assert set(GOLDEN) == set(EXAMPLES)
    assert {golden["headers"]["lm-kind"] for golden in GOLDEN.values()} == {kind.value for kind in RecordKind}


@pytest.mark.parametrize("name", EXAMPLES)
def test_record_is_written_as_these_bytes(name: str) -> None:
    assert written_down(bytes_of(EXAMPLES[name])) == GOLDEN[name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_these_bytes_are_read_as_the_record(name: str) -> None:
    golden = GOLDEN[name]
    headers = [(header, content.encode()) for header, content in golden["headers"].items()]
    value = base64.b64decode(golden["arrow"]) if "arrow" in golden else golden["text"].encode()
    record: Record = EXAMPLES[name]
    assert equal(decode(headers, value, lambda origin: PARTIALS), record)
