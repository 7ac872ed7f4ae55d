from __future__ import annotations

import pytest

from lowmark.query.catalog import PACKET_FIELDS, field_table, packet_field
from lowmark.wire.rows.schema import Kind

ORDER = (
    "ts srcIP destIP srcPort destPort proto len ip_len payload_len tos ttl tcp_flags icmp_type icmp_code ip_version "
    "fragment vlan srcMAC destMAC link row_num arrival_ts"
)


def test_fields_stand_in_the_order_of_select_star() -> None:
    assert [field.name for field in PACKET_FIELDS] == ORDER.split()


def test_kinds() -> None:
    kinds = {field.name: field.kind for field in PACKET_FIELDS}
    assert {name for name, kind in kinds.items() if kind is Kind.TIME} == {"ts", "arrival_ts"}
    assert {name for name, kind in kinds.items() if kind is Kind.IP} == {"srcIP", "destIP"}
    assert {name for name, kind in kinds.items() if kind is Kind.MAC} == {"srcMAC", "destMAC"}
    assert {name for name, kind in kinds.items() if kind is Kind.STR} == {"link"}
    assert set(kinds.values()) == {Kind.TIME, Kind.IP, Kind.MAC, Kind.STR, Kind.INT}


def test_every_field_has_a_definition_of_one_sentence() -> None:
    for field in PACKET_FIELDS:
        assert field.definition.endswith(".")
        assert ". " not in field.definition


def test_measures_have_units() -> None:
    units = {field.name: field.unit for field in PACKET_FIELDS if field.unit}
    assert units == {
        "ts": "ns", "arrival_ts": "ns", "len": "bytes", "ip_len": "bytes", "payload_len": "bytes", "ttl": "hops",
        "row_num": "rows",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shown"),
    [("srcIP", "srcIP"), ("SRCIP", "srcIP"), ("dstip", "destIP"), ("src", "srcIP"), ("DST", "destIP"),
     ("sport", "srcPort"), ("dport", "destPort"), ("Length", "len"), ("row-num", "row_num"), ("ROW_NUM", "row_num")],
)  # fmt: skip
def test_fields_are_found_by_name_and_alias_in_any_case(name: str, shown: str) -> None:
    field = packet_field(name)
    assert field is not None
    assert field.name == shown


@pytest.mark.parametrize("name", ["", "srcIPP", "dest", "row num", "ı"])
def test_other_names_are_no_fields(name: str) -> None:
    assert packet_field(name) is None


def test_no_name_means_two_fields() -> None:
    names = [name.casefold() for field in PACKET_FIELDS for name in (field.name, *field.aliases)]
    assert len(names) == len(set(names))


def test_the_table_lists_every_field_in_aligned_columns() -> None:
    head, rule, *rows = field_table().split("\n")
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "field",
        "kind",
        "unit",
        "also called",
        "definition",
    ]
    assert set(rule) == {"|", "-"}
    assert [row.split("|")[1].strip() for row in rows] == ORDER.split()
    for row in rows:
        assert [i for i, char in enumerate(row) if char == "|"][:5] == [
            i for i, char in enumerate(rule) if char == "|"
        ][:5]
    assert len(field_table(PACKET_FIELDS[:2]).split("\n")) == 4
