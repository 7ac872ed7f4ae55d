"""The names of result columns in other vocabularies: ECS, OpenTelemetry, IPFIX. Values never change with them.

A column is renamed if it is shown under the name of a packet field, or if `OFFICIAL` has it. An alias stays as it was
written, and so does a column that is made from one, because it need not hold what its name says. The name of an
aggregate is official where it is one of packets. The field of a join's input keeps the input's name before it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from lowmark.query.bind.selection import groups
from lowmark.query.catalog import DERIVED_FIELDS, PACKET_FIELDS
from lowmark.query.options import Vocabulary
from lowmark.query.parse import syntax as s
from lowmark.query.parse.parser import parse
from lowmark.query.plan.nodes import QueryPlan
from lowmark.wire.rows.schema import Kind

__all__ = ["BOUND_NAMES", "OFFICIAL", "NameClash", "Official", "name_in", "result_names"]


@dataclass(frozen=True, slots=True)
class Official:
    """What a column is called in each vocabulary; None: it has no name there for this value."""

    ecs: str | None = None
    otel: str | None = None
    ipfix: str | None = None


OFFICIAL: Final[Mapping[str, Official]] = MappingProxyType({
    "window_start": Official(ecs="event.start", ipfix="flowStartNanoseconds"),
    "window_end": Official(ecs="event.end", ipfix="flowEndNanoseconds"),
    "count": Official(ecs="network.packets", ipfix="packetDeltaCount"),
    "sum_len": Official(ecs="network.bytes", ipfix="layer2OctetDeltaCount"),
    "sum_ip_len": Official(ipfix="octetDeltaCount"),
    "sum_payload_len": Official(ipfix="transportOctetDeltaCount"),
    "min_ip_len": Official(ipfix="minimumIpTotalLength"),
    "max_ip_len": Official(ipfix="maximumIpTotalLength"),
    "min_ttl": Official(ipfix="minimumTTL"),
    "max_ttl": Official(ipfix="maximumTTL"),
    "bit_or_tcp_flags": Official(ipfix="tcpControlBits"),
    "ts": Official(ecs="@timestamp", ipfix="observationTimeNanoseconds"),
    "srcIP": Official(ecs="source.ip", otel="source.address"),
    "destIP": Official(ecs="destination.ip", otel="destination.address"),
    "srcPort": Official(ecs="source.port", otel="source.port", ipfix="sourceTransportPort"),
    "destPort": Official(ecs="destination.port", otel="destination.port", ipfix="destinationTransportPort"),
    "proto": Official(ecs="network.iana_number", ipfix="protocolIdentifier"),
    "len": Official(ipfix="dataLinkFrameSize"),
    "ip_len": Official(ipfix="ipTotalLength"),
    "tos": Official(ipfix="ipClassOfService"),
    "ttl": Official(ipfix="ipTTL"),
    "tcp_flags": Official(ipfix="tcpControlBits"),
    "ip_version": Official(ipfix="ipVersion"),
    "vlan": Official(ecs="network.vlan.id", ipfix="dot1qVlanId"),
    "srcMAC": Official(ecs="source.mac", ipfix="sourceMacAddress"),
    "destMAC": Official(ecs="destination.mac", ipfix="destinationMacAddress"),
    "row_num": Official(ecs="event.sequence"),
    "arrival_ts": Official(ecs="event.created"),
    "community_id": Official(ecs="network.community_id"),
})  # fmt: skip
"""All official names. A name does not count if the vocabulary gives its values another form (`network.type` is a word,
not 4 or 6)."""

_OWN: Final[Mapping[Vocabulary, str]] = MappingProxyType(
    {Vocabulary.ECS: "lowmark.", Vocabulary.OTEL: "lowmark.", Vocabulary.IPFIX: ""}
)
"""Before a packet field without an official name: ECS and OpenTelemetry ask for a namespace, IPFIX has none."""

_UNOFFICIAL: Final = MappingProxyType({
    (Vocabulary.IPFIX, "srcIP"): "sourceIPAddress", (Vocabulary.IPFIX, "destIP"): "destinationIPAddress",
})  # fmt: skip
"""IPFIX names addresses of each version apart (sourceIPv4Address, sourceIPv6Address); a column here holds both."""

BOUNDS: Final = ("window_start", "window_end")

_FIELDS: Final = frozenset(field.name for field in (*PACKET_FIELDS, *DERIVED_FIELDS))
_AGGREGATES: Final = OFFICIAL.keys() - _FIELDS - set(BOUNDS)


class NameClash(ValueError):
    """Two columns of a query would have one name."""


def name_in(names: Vocabulary, column: str) -> str:
    """The name of a column that has no alias."""
    if names is Vocabulary.LOWMARK:
        return column
    label, _, field = column.partition(".")
    if column in _FIELDS or column in OFFICIAL or field not in _FIELDS:
        return _name_of(names, column)
    return f"{label}.{_name_of(names, field)}"  # the field of an input of a join


def _name_of(names: Vocabulary, field: str) -> str:
    official = OFFICIAL.get(field)
    found = None if official is None else getattr(official, names.value)
    assert found is None or isinstance(found, str)
    return found or _UNOFFICIAL.get((names, field)) or (_OWN[names] if field in _FIELDS else "") + field


BOUND_NAMES: Final = frozenset((name_in(names, BOUNDS[0]), name_in(names, BOUNDS[1])) for names in Vocabulary)
"""What the two bounds of a window are called in any vocabulary."""


def result_names(plan: QueryPlan, names: Vocabulary) -> dict[str, str]:
    """The shown name of each result column whose name changes. Raises NameClash."""
    if names is Vocabulary.LOWMARK:
        return {}
    script = parse(plan.sql)
    answered = script.statements[-1]
    assert isinstance(answered, s.Select), "the query was compiled"
    own = set(_aliases(answered))
    made = {alias.casefold() for alias in _aliases(*(node for node in s.walk(script) if isinstance(node, s.Select)))}
    created = {each.name.text.casefold(): each.select for each in script.statements if isinstance(each, s.CreateStream)}
    of_packets = _over_packets(answered, created)
    shown: dict[str, str] = {}
    for column in plan.output:
        name = column.name
        stays = name in own or _is_made_from(name, made)
        stays |= name in BOUNDS and column.kind is not Kind.TIME  # the bounds of windows over rows are numbers
        stays |= name in _AGGREGATES and not of_packets
        shown[name] = name if stays else name_in(names, name)
    by_name: dict[str, str] = {}
    for column_name, name in shown.items():
        if (other := by_name.setdefault(name, column_name)) != column_name:
            raise NameClash(f"{other} and {column_name} would both be called {name}: give one of them an alias")
    return {column_name: name for column_name, name in shown.items() if name != column_name}


def _aliases(*selects: s.Select) -> Iterator[str]:
    for select in selects:
        for alias in (*(item.alias for item in select.items), *(item.alias for item in select.group_by)):
            if alias is not None:
                yield alias.text


def _is_made_from(column: str, aliases: Collection[str]) -> bool:
    """Whether the name is an alias, or ends with one after a join's input (`A.alias`) or an aggregate (`sum_alias`)."""
    folded = column.casefold()
    if folded in aliases:
        return True
    return column not in _FIELDS and any(folded.endswith((f".{alias}", f"_{alias}")) for alias in aliases)


def _over_packets(select: s.Select, created: Mapping[str, s.Select]) -> bool:
    """Whether each tuple that the SELECT reads is one packet."""
    first, *others = select.sources
    return not others and isinstance(first, s.Input) and _is_of_packets(first.relation, created)


def _is_of_packets(relation: s.Relation, created: Mapping[str, s.Select]) -> bool:
    match relation:
        case s.Union(members):
            return all(_is_of_packets(member, created) for member in members)
        case s.Subquery(select):
            inner = select
        case s.StreamRef(name):
            found = created.get(name.text.casefold())
            if found is None:
                return True
            inner = found
    return not groups(inner) and _over_packets(inner, created)
