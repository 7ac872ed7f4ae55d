/* The algorithm of the generated kernel by hand: Q8-1 with a sum, also in the order of panes, and ten queries at once.
   Batches of 64 in three passes: the first parses, hashes and prefetches, the second prefetches the other slots of
   pairs, the third merges. `bench.kernel` compiles it, compares what it puts out with what the generated kernel does,
   row by row, and then the time. Frames without an IP header right behind Ethernet's are skipped here. */
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t i64;

enum { BATCH = 64, PANES = 256, AHEAD = 16, SLOT = 8, QUERIES = 10 };
static const i64 SECOND = 1000000000, MINUTE = 60000000000;

/* Of one query: its table, whose slots are a cache line each, and how partials leave it. */
typedef struct {
    i64 *table;
    i64 slots;
    uint32_t *ring;      /* numbers of the occupied slots, in the order in which they came to be */
    i64 panes[2][PANES]; /* residents by pane */
    i64 head, length, open, open_until, due, old, walk, done, hurry, since;
    i64 width, delay, within, every, most;
    i64 *out;
    i64 room, put; /* a power of two, and the rows put out so far: the last ones are there */
    i64 evicted, straight, flushed, late, filtered, taken;
} node;

typedef struct {
    node nodes[QUERIES];
    u64 secrets[16];
    i64 decoded, skipped;
} kernel;

/* Of a query in a batch. */
typedef struct {
    i64 from, until, pane, open, open_until, late, filtered;
    int count;
} cursor;

typedef struct {
    u64 source[2], target[2];
    i64 length, ip_length, ttl, proto, fragment, port, flags, payload, version;
    u64 six; /* 1: of an IPv6 packet */
} packet;

static inline u64 fold(u64 a, u64 b) { __uint128_t p = (__uint128_t)a * b; return (u64)p ^ (u64)(p >> 64); }
static inline uint32_t be32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline u64 be64(const uint8_t *p) { u64 v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline i64 be16(const uint8_t *p) { return (i64)p[0] << 8 | p[1]; }

static inline int parsed(const uint8_t *p, i64 captured, packet *o) {
    i64 kind = be16(p + 12), later = 0;
    const uint8_t *ip = p + 14, *upper, *stop = p + captured;
    if (captured < 34 || (kind != 0x0800 && (kind != 0x86DD || captured < 54))) return 0;
    if (kind == 0x0800) {
        i64 header = (ip[0] & 15) * 4, offset = be16(ip + 6);
        o->ip_length = be16(ip + 2);
        if ((ip[0] != 0x45 && (ip[0] >> 4 != 4 || header < 20)) || (o->ip_length < header && o->ip_length)) return 0;
        o->source[0] = 0, o->source[1] = be32(ip + 12);
        o->target[0] = 0, o->target[1] = be32(ip + 16);
        o->version = 4, o->six = 0, o->ttl = ip[8], o->proto = ip[9], o->fragment = (offset & 0x3FFF) != 0;
        later = (offset & 0x1FFF) != 0;
        upper = ip + header;
    } else {
        if (ip[0] >> 4 != 6) return 0;
        o->ip_length = be16(ip + 4) + 40;
        o->source[0] = be64(ip + 8), o->source[1] = be64(ip + 16);
        o->target[0] = be64(ip + 24), o->target[1] = be64(ip + 32);
        o->version = 6, o->six = 1, o->ttl = ip[7], o->proto = ip[6], o->fragment = 0;
        upper = ip + 40;
        while ((o->proto == 0 || o->proto == 43 || o->proto == 60) && stop - upper >= 8)
            o->proto = upper[0], upper += 8 * (upper[1] + 1);
    }
    i64 left = stop - upper, proto = o->proto, ports = proto == 6 || proto == 17 || proto == 33 || proto == 132 || proto == 136;
    o->port = !later && left >= 4 && ports ? be16(upper + 2) : 0;
    o->flags = proto == 6 && !later && left >= 14 ? upper[13] : 0;
    o->payload = o->ip_length - (upper - ip);
    if (proto == 6 && !later) o->payload -= left >= 13 ? (upper[12] >> 4) * 4 : 20;
    if (proto == 17 && !later) o->payload -= 8;
    if (o->payload < 0) o->payload = 0;
    return 1;
}

/* Whether a tuple is taken: not where its pane has ended. */
static inline int placed(cursor *c, i64 time, i64 low, i64 width) {
    if (time < c->from || time >= c->until) {
        c->pane = time / width;
        c->from = c->pane * width, c->until = c->from + width;
    }
    if (low >= c->open_until) {
        c->open = low / width;
        c->open_until = (c->open + 1) * width;
    }
    c->late += c->pane < c->open;
    return c->pane >= c->open;
}

static inline int added(i64 *to, i64 value) {
    i64 sum;
    if (__builtin_add_overflow(*to, value, &sum)) return 0;
    *to = sum;
    return 1;
}

#define ADDED(place) added(&t[place], r[place])
#define NOTHING(t, r) 1
#define PAIRS(t, r) ADDED(7)
#define SUMMED(t, r) ADDED(5)
#define BYTES(t, r) ADDED(4)
#define LONGEST(t, r) (t[4] = r[4] > t[4] ? r[4] : t[4], 1)
#define BYTES_AND_LEAST(t, r) (ADDED(3) && (t[4] = r[4] < t[4] ? r[4] : t[4], 1))

#define QUERY in_order
#define WORDS 8
#define KEYS 4
#define MERGE PAIRS
#define ORDERED 1
#include "kernelnode.h"
#define QUERY 0
#define WORDS 8
#define KEYS 4
#define MERGE PAIRS
#include "kernelnode.h"
#define QUERY 1
#define WORDS 5
#define KEYS 2
#define MERGE NOTHING
#include "kernelnode.h"
#define QUERY 2
#define WORDS 6
#define KEYS 2
#define MERGE SUMMED
#include "kernelnode.h"
#define QUERY 3
#define WORDS 5
#define KEYS 1
#define MERGE BYTES
#include "kernelnode.h"
#define QUERY 4
#define WORDS 5
#define KEYS 1
#define MERGE LONGEST
#include "kernelnode.h"
#define QUERY 7
#define WORDS 5
#define KEYS 0
#define MERGE BYTES_AND_LEAST
#include "kernelnode.h"
#define QUERY 9
#define WORDS 5
#define KEYS 2
#define MERGE NOTHING
#include "kernelnode.h"

/* A row of the query, and where its group belongs; in its mask the bit of each address, where that is IPv6. */
#define ROW(q, words, mask, hash, ...)                                                                        \
    do {                                                                                                      \
        const u64 row[] = {mask, (u64)c[q].pane, 1, __VA_ARGS__};                                             \
        memcpy(&rows[q][(words) * c[q].count], row, 8 * (words));                                             \
        u64 place = (hash) & (u64)(k->nodes[q].slots - 1);                                                    \
        places[q][c[q].count++] = place;                                                                      \
        __builtin_prefetch(&k->nodes[q].table[SLOT * place], 1, 3);                                           \
    } while (0)
#define HASH(a, b) fold((u64)(a) ^ secrets[1], (u64)(b) ^ secrets[2])

static inline void begin(cursor *c, const node *s) {
    c->open = s->open, c->open_until = s->open_until;
    c->late = c->filtered = c->count = 0;
}

static inline void take(kernel *k, const uint8_t *data, const i64 *offset, const i64 *captured, const i64 *length,
                        const i64 *ts, const int32_t *link, const i64 *low, i64 frames, i64 low_after, int queries,
                        int in_order) {
    i64 rows[QUERIES][8 * BATCH];
    u64 places[QUERIES][BATCH], secrets[16];
    cursor c[QUERIES] = {0};
    memcpy(secrets, k->secrets, sizeof secrets);
    for (i64 first = 0; first < frames; first += BATCH) {
        i64 last = first + BATCH < frames ? first + BATCH : frames;
        for (int q = 0; q < queries; q++) begin(&c[q], &k->nodes[q]);
        for (i64 j = first; j < last; j++) {
            packet p;
            if (link[j] != 1 || !parsed(data + offset[j], captured[j], &p)) {
                k->skipped++;
                continue;
            }
            k->decoded++;
            i64 time = ts[j], until = low[j], bytes = length[j];
            u64 source = HASH(p.source[0], p.source[1]), target = HASH(p.target[0], p.target[1]);
            if (placed(&c[0], time, until, MINUTE)) {
                u64 second = fold(p.target[0] ^ secrets[3], p.target[1] ^ secrets[4]);
                ROW(0, 8, p.six * 12, fold(source ^ secrets[0], second ^ secrets[3]), p.source[0], p.source[1],
                    p.target[0], p.target[1], bytes);
            }
            if (queries == 1) continue;
            if (placed(&c[1], time, until, MINUTE)) ROW(1, 5, p.six * 4, source, p.source[0], p.source[1]);
            if (p.proto != 17) c[2].filtered++;
            else if (placed(&c[2], time, until, MINUTE)) ROW(2, 6, p.six * 4, target, p.target[0], p.target[1], bytes);
            if (placed(&c[3], time, until, 10 * SECOND)) ROW(3, 5, 0, HASH(p.port, 0), p.port, bytes);
            if (placed(&c[4], time, until, SECOND)) ROW(4, 5, 0, HASH(p.proto, 0), p.proto, bytes);
            if (placed(&c[5], time, until, MINUTE)) {
                u64 high = p.source[0] & ~0xFFFFFFFFFFULL, net = p.six ? 0 : p.source[1] & ~0xFFULL;
                ROW(5, 5, p.six * 4, HASH(high, net), high, net);
            }
            if (placed(&c[6], time, until, MINUTE)) ROW(6, 5, 0, HASH(0, 0), 0, p.payload); /* no frame has a tag */
            if (placed(&c[7], time, until, SECOND)) ROW(7, 5, 0, secrets[0], bytes, p.ttl);
            if ((p.flags & 18) != 2) c[8].filtered++;
            else if (placed(&c[8], time, until, MINUTE)) ROW(8, 5, p.six * 4, source, p.source[0], p.source[1]);
            if (placed(&c[9], time, until, MINUTE)) ROW(9, 5, 0, HASH(p.version, p.fragment), p.version, p.fragment);
        }
        i64 now = low[last - 1];
        if (in_order) batch_in_order(&k->nodes[0], &c[0], rows[0], places[0], now);
        else batch_0(&k->nodes[0], &c[0], rows[0], places[0], now);
        if (queries == 1) continue;
        batch_1(&k->nodes[1], &c[1], rows[1], places[1], now);
        batch_2(&k->nodes[2], &c[2], rows[2], places[2], now);
        batch_3(&k->nodes[3], &c[3], rows[3], places[3], now);
        batch_4(&k->nodes[4], &c[4], rows[4], places[4], now);
        batch_1(&k->nodes[5], &c[5], rows[5], places[5], now);
        batch_3(&k->nodes[6], &c[6], rows[6], places[6], now);
        batch_7(&k->nodes[7], &c[7], rows[7], places[7], now);
        batch_1(&k->nodes[8], &c[8], rows[8], places[8], now);
        batch_9(&k->nodes[9], &c[9], rows[9], places[9], now);
    }
    if (low_after > INT64_MIN + 1) {
        if (k->nodes[0].length && in_order) leave_in_order(&k->nodes[0], low_after, 0);
        else if (k->nodes[0].length) leave_0(&k->nodes[0], low_after, 0);
        if (queries == 1) return;
        if (k->nodes[1].length) leave_1(&k->nodes[1], low_after, 0);
        if (k->nodes[2].length) leave_2(&k->nodes[2], low_after, 0);
        if (k->nodes[3].length) leave_3(&k->nodes[3], low_after, 0);
        if (k->nodes[4].length) leave_4(&k->nodes[4], low_after, 0);
        if (k->nodes[5].length) leave_1(&k->nodes[5], low_after, 0);
        if (k->nodes[6].length) leave_3(&k->nodes[6], low_after, 0);
        if (k->nodes[7].length) leave_7(&k->nodes[7], low_after, 0);
        if (k->nodes[8].length) leave_1(&k->nodes[8], low_after, 0);
        if (k->nodes[9].length) leave_9(&k->nodes[9], low_after, 0);
    }
}

#define FUNCTION(name, queries, in_order)                                                                     \
    void name(kernel *k, const uint8_t *data, const i64 *offset, const i64 *captured, const i64 *length,      \
              const i64 *ts, const int32_t *link, const i64 *low, i64 frames, i64 low_after) {                \
        take(k, data, offset, captured, length, ts, link, low, frames, low_after, queries, in_order);         \
    }
FUNCTION(take_one, 1, 0)
FUNCTION(take_one_in_order, 1, 1)
FUNCTION(take_ten, QUERIES, 0)
