// The fields of each message, in the order in which they are written.
#pragma once

#include "fields.hpp"
#include "messages.hpp"

namespace terrace::node::wire {

template <typename Fields>
void list_fields(Fields& fields, Header& m) {
  fields(m.body_bytes, m.kind, m.reserved, m.status, m.request);
}
template <typename Fields>
void list_fields(Fields& fields, Hello& m) {
  fields(m.magic, m.version_first, m.version_last, m.name, m.salt);
}
template <typename Fields>
void list_fields(Fields& fields, HelloReply& m) {
  fields(m.version, m.instance, m.lease_ns, m.leases_max, m.reservations_max, m.client_bytes);
}
template <typename Fields>
void list_fields(Fields& fields, SizedPart& m) {
  fields(m.name, m.bytes);
}
template <typename Fields>
void list_fields(Fields& fields, Find& m) {
  fields(m.root, m.tokens, m.keys);
}
template <typename Fields>
void list_fields(Fields& fields, PartList& m) {
  fields(m.parts);
}
template <typename Fields>
void list_fields(Fields& fields, FoundChunk& m) {
  fields(m.tokens, m.list);
}
template <typename Fields>
void list_fields(Fields& fields, FindReply& m) {
  fields(m.outcome, m.lease, m.lists, m.chunks);
}
template <typename Fields>
void list_fields(Fields& fields, Lease& m) {
  fields(m.keys, m.brings_last);
}
template <typename Fields>
void list_fields(Fields& fields, LeaseReply& m) {
  fields(m.lease, m.numbers, m.lists, m.chunks);
}
template <typename Fields>
void list_fields(Fields& fields, WantedPart& m) {
  fields(m.chunk, m.name);
}
template <typename Fields>
void list_fields(Fields& fields, Read& m) {
  fields(m.lease, m.parts);
}
template <typename Fields>
void list_fields(Fields& fields, Segment& m) {
  fields(m.number, m.bytes);
}
template <typename Fields>
void list_fields(Fields& fields, PlacedPart& m) {
  fields(m.status, m.segment, m.offset, m.bytes);
}
template <typename Fields>
void list_fields(Fields& fields, ReadReply& m) {
  fields(m.retired, m.segments, m.parts);
}
template <typename Fields>
void list_fields(Fields& fields, LeaseNumber& m) {
  fields(m.lease);
}
template <typename Fields>
void list_fields(Fields& fields, MassSample& m) {
  fields(m.millionths);
}
template <typename Fields>
void list_fields(Fields& fields, Reserve& m) {
  fields(m.root, m.key, m.tokens, m.lease, m.parts);
}
template <typename Fields>
void list_fields(Fields& fields, ReserveReply& m) {
  fields(m.state, m.reservation, m.bytes, m.lease);
}
template <typename Fields>
void list_fields(Fields& fields, ReservationNumber& m) {
  fields(m.reservation);
}
template <typename Fields>
void list_fields(Fields& fields, CommitReply& m) {
  fields(m.state, m.lease);
}
template <typename Fields>
void list_fields(Fields& fields, KeyMessage& m) {
  fields(m.key);
}
template <typename Fields>
void list_fields(Fields& fields, Counter& m) {
  fields(m.name, m.value);
}
template <typename Fields>
void list_fields(Fields& fields, StatsReply& m) {
  fields(m.counters);
}

}  // namespace terrace::node::wire
