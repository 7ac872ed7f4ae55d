/* The algorithm of the generated kernel for one query, by hand: packets, tuples and bytes by pair of addresses and
   minute. Batches of 64 in three passes: the first parses, hashes and prefetches, the second prefetches the other slots
   of pairs, the third merges. `bench.kernel` compiles it, and compares the kernel that numba makes with it. */
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;
typedef int64_t i64;

enum { BATCH = 64, PANES = 256 };

/* One group of one pane; a cache line. */
typedef struct { u64 nulls; i64 pane, tuples; u64 source[2], target[2]; i64 bytes; } row;

typedef struct {
    row *table;
    u64 slots;
    uint32_t *ring;      /* numbers of the occupied slots, in the order in which they came to be */
    u64 head, length;
    i64 panes[2][PANES]; /* residents by pane */
    i64 open, due, open_until;
    row *out;
    u64 room, put;
    u64 evicted, straight, flushed, decoded, skipped, late;
    u64 secrets[16];
} state;

static inline u64 fold(u64 a, u64 b) { __uint128_t p = (__uint128_t)a * b; return (u64)p ^ (u64)(p >> 64); }
static inline uint32_t be32(const uint8_t *p) { uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v); }
static inline u64 be64(const uint8_t *p) { u64 v; memcpy(&v, p, 8); return __builtin_bswap64(v); }
static inline unsigned be16(const uint8_t *p) { return (unsigned)p[0] << 8 | p[1]; }

static inline int same(const row *a, const row *b) {
    return a->pane == b->pane && a->source[0] == b->source[0] && a->source[1] == b->source[1] &&
           a->target[0] == b->target[0] && a->target[1] == b->target[1];
}

/* Whether a slot has another group that stays, so that the other slot of its pair is tried. */
static inline int taken(const row *t, const row *r) { return t->tuples && t->pane >= r->pane && !same(t, r); }

static inline row *next_out(state *s) { return &s->out[s->put++ % s->room]; }

/* All residents of panes that have ended leave. */
static void flush(state *s, i64 due) {
    u64 left = s->length;
    for (u64 i = 0; i < left; i++) {
        uint32_t slot = s->ring[s->head];
        __builtin_prefetch(&s->table[s->ring[(s->head + 16) & (s->slots - 1)] & (s->slots - 1)], 1, 3);
        s->head = (s->head + 1) & (s->slots - 1);
        row *t = &s->table[slot];
        if (t->pane < due) {
            *next_out(s) = *t;
            t->tuples = 0;
            s->panes[1][t->pane & (PANES - 1)]--;
            s->length--;
            s->flushed++;
        } else {
            s->ring[(s->head + s->length - 1) & (s->slots - 1)] = slot;
        }
    }
    s->due = due;
}

void run(state *s, const uint8_t *data, const i64 *offset, const i64 *captured, const i64 *length, const i64 *ts,
         const int32_t *link, const i64 *low, i64 frames, i64 width) {
    row rows[BATCH];
    u64 places[BATCH];
    i64 from = 0, until = 0, pane = 0;
    for (i64 first = 0; first < frames; first += BATCH) {
        i64 last = first + BATCH < frames ? first + BATCH : frames;
        int count = 0;
        for (i64 j = first; j < last; j++) {
            const uint8_t *p = data + offset[j];
            unsigned kind = be16(p + 12);
            if (link[j] != 1 || captured[j] < 34 || (kind != 0x0800 && (kind != 0x86DD || captured[j] < 54))) {
                s->skipped++;
                continue;
            }
            row *r = &rows[count];
            const uint8_t *ip = p + 14;
            if (kind == 0x0800) {
                unsigned header = (ip[0] & 15) * 4, total = be16(ip + 2);
                if ((ip[0] != 0x45 && (ip[0] >> 4 != 4 || header < 20)) || (total < header && total != 0)) {
                    s->skipped++;
                    continue;
                }
                r->source[0] = 0, r->source[1] = 0xFFFF00000000ULL | be32(ip + 12);
                r->target[0] = 0, r->target[1] = 0xFFFF00000000ULL | be32(ip + 16);
            } else {
                if (ip[0] >> 4 != 6) {
                    s->skipped++;
                    continue;
                }
                r->source[0] = be64(ip + 8), r->source[1] = be64(ip + 16);
                r->target[0] = be64(ip + 24), r->target[1] = be64(ip + 32);
            }
            s->decoded++;
            i64 time = ts[j];
            if (time < from || time >= until) {
                pane = time / width;
                from = pane * width, until = from + width;
            }
            if (low[j] >= s->open_until) {
                s->open = low[j] / width;
                s->open_until = (s->open + 1) * width;
            }
            if (pane < s->open) {
                s->late++;
                continue;
            }
            r->nulls = 0, r->pane = pane, r->tuples = 1, r->bytes = length[j];
            u64 h = fold(r->source[0] ^ s->secrets[1], r->source[1] ^ s->secrets[2]);
            u64 g = fold(r->target[0] ^ s->secrets[3], r->target[1] ^ s->secrets[4]);
            places[count] = fold(h ^ s->secrets[0], g ^ s->secrets[3]) & (s->slots - 1);
            __builtin_prefetch(&s->table[places[count]], 1, 3);
            count++;
        }
        for (int k = 0; k < count; k++)
            if (taken(&s->table[places[k]], &rows[k])) __builtin_prefetch(&s->table[places[k] ^ 1], 1, 3);
        for (int k = 0; k < count; k++) {
            row *r = &rows[k], *t = &s->table[places[k]];
            if (taken(t, r)) {
                row *other = &s->table[places[k] ^ 1];
                if (!other->tuples || other->pane < r->pane || same(other, r)) t = other;
            }
            if (t->tuples) {
                if (same(t, r)) {
                    i64 sum;
                    if (!__builtin_add_overflow(t->bytes, r->bytes, &sum)) {
                        t->bytes = sum;
                        t->tuples++;
                        continue;
                    }
                } else if (r->pane < t->pane) {
                    *next_out(s) = *r;
                    s->straight++;
                    continue;
                }
            }
            i64 place = r->pane & (PANES - 1);
            if (s->panes[1][place] && s->panes[0][place] != r->pane) {
                *next_out(s) = *r;
                s->straight++;
                continue;
            }
            if (t->tuples) {
                *next_out(s) = *t;
                s->evicted++;
                s->panes[1][t->pane & (PANES - 1)]--;
            } else {
                s->ring[(s->head + s->length++) & (s->slots - 1)] = (uint32_t)(t - s->table);
            }
            s->panes[0][place] = r->pane;
            s->panes[1][place]++;
            *t = *r;
        }
        if (s->open > s->due) flush(s, s->open);
    }
}
