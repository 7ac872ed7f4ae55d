/* One query's part of the kernel: rows of WORDS words, of which KEYS behind the first three and the mask name the group; MERGE(t, r)
   adds row r to the resident t, or is 0 where a sum would not fit. Included once for each QUERY, with ORDERED where the
   partials of a pane leave before those of later ones: what differs is known to the compiler, as in the generated
   kernel. The steps are those of lowlevel/kernel/nodetext.py, tabletext.py, flush.py and ordered.py. */

#define JOINED_(a, b) a##_##b
#define JOINED(a, b) JOINED_(a, b)
#define OF(name) JOINED(name, QUERY)

static inline int OF(same)(const i64 *t, const i64 *r) {
    int equal = t[0] == r[0] && t[1] == r[1];
    for (int i = 3; i < 3 + KEYS; i++) equal &= t[i] == r[i];
    return equal;
}

/* Whether a slot has another group that stays, so that the other slot of its pair is tried. */
static inline int OF(taken)(const i64 *t, const i64 *r) { return t[2] && t[1] >= r[1] && !OF(same)(t, r); }

static inline void OF(copy)(i64 *to, const i64 *row) {
    for (int i = 0; i < WORDS; i++) to[i] = row[i];
}

/* What has to leave by now. force 1: all whose pane has ended; 2: all. */
static void OF(flush)(node *s, i64 low, int force) {
    i64 ended = low / s->width, due = force == 2 ? INT64_MAX : force ? ended : ended - s->delay;
    if (due > s->due) {
        i64 old = 0, hurry = 0;
        for (int p = 0; p < PANES; p++)
            if (s->panes[1][p] && s->panes[0][p] < due) {
                old += s->panes[1][p];
                if (s->panes[0][p] < due - 1 && !s->every) hurry = 1;
            }
        s->due = due, s->old = old, s->walk = s->length, s->done = 0, s->hurry = hurry, s->since = s->taken;
    }
    if (!s->old) return;
    i64 target = s->walk, passed = low % s->width;
    if (!force && s->every) {
        i64 oldest = ended, walked = (s->taken - s->since) / s->every;
        if (walked < target) target = walked;
        for (int p = 0; p < PANES; p++)
            if (s->panes[1][p] && s->panes[0][p] < oldest) oldest = s->panes[0][p];
        if (oldest < ended - s->most) {
            target = s->walk;
        } else if (oldest == ended - s->most) {
            double share = (double)passed / s->width * (8.0 / 7.0);
            i64 by_time = s->walk * (share < 1 ? share : 1);
            if (by_time > target) target = by_time;
        }
    } else if (!force && !s->hurry && passed < s->within) {
        target = s->walk * ((double)passed / s->within);
    }
    i64 head = s->head, length = s->length, done = s->done, old = s->old, put = s->put, flushed = 0, mask = s->slots - 1;
    while (done < target && old) {
        uint32_t slot = s->ring[head];
        __builtin_prefetch(&s->table[SLOT * (i64)s->ring[(head + AHEAD) & mask]], 1, 3);
        head = (head + 1) & mask;
        i64 *t = &s->table[SLOT * (i64)slot];
        if (t[1] < due) {
            OF(copy)(&s->out[WORDS * (put++ & (s->room - 1))], t);
            t[2] = 0;
            s->panes[1][t[1] & (PANES - 1)]--;
            length--, old--, flushed++;
        } else {
            s->ring[(head + length - 1) & mask] = slot;
        }
        done++;
    }
    s->head = head, s->length = length, s->done = done, s->old = old, s->put = put, s->flushed += flushed;
}

#if ORDERED
/* All residents of panes before this one, an older pane before a newer one. */
static void OF(flush_below)(node *s, i64 limit) {
    for (;;) {
        i64 pane = limit, kept = 0, flushed = 0, mask = s->slots - 1;
        for (int p = 0; p < PANES; p++)
            if (s->panes[1][p] && s->panes[0][p] < pane) pane = s->panes[0][p];
        if (pane >= limit) return;
        for (i64 step = 0; step < s->length; step++) {
            uint32_t slot = s->ring[(s->head + step) & mask];
            i64 *t = &s->table[SLOT * (i64)slot];
            if (t[1] == pane) {
                OF(copy)(&s->out[WORDS * (s->put++ & (s->room - 1))], t);
                t[2] = 0;
                flushed++;
            } else {
                s->ring[(s->head + kept++) & mask] = slot;
            }
        }
        s->panes[1][pane & (PANES - 1)] = 0;
        s->length = kept, s->flushed += flushed;
        if (pane < s->due) s->old -= flushed;
    }
}
#endif

static void OF(leave)(node *s, i64 low, int force) {
#if ORDERED
    i64 due = force == 2 ? INT64_MAX : low / s->width - (force ? 0 : s->delay + 1);
    if (force || due >= s->due) OF(flush_below)(s, due);
#endif
    OF(flush)(s, low, force);
}

/* The tuples of a batch into the table, then what has to leave by now. */
static void OF(batch)(node *s, const cursor *c, const i64 *rows, const u64 *places, i64 low) {
    i64 *table = s->table, put = s->put, length = s->length, old = s->old, head = s->head, mask = s->slots - 1;
    i64 evicted = 0, straight = 0, due = s->due;
    s->open = c->open, s->open_until = c->open_until, s->late += c->late;
    s->filtered += c->filtered, s->taken += c->count;
    for (int k = 0; k < c->count; k++)
        if (OF(taken)(&table[SLOT * places[k]], &rows[WORDS * k])) __builtin_prefetch(&table[SLOT * (places[k] ^ 1)], 1, 3);
#if ORDERED
    i64 empty_below = INT64_MIN;
#endif
    for (int k = 0; k < c->count; k++) {
        const i64 *r = &rows[WORDS * k];
        u64 slot = places[k];
        i64 *t = &table[SLOT * slot];
        if (OF(taken)(t, r)) {
            i64 *other = &table[SLOT * ((slot ^ 1) & mask)];
            if (!other[2] || other[1] < r[1] || OF(same)(other, r)) t = other, slot = (slot ^ 1) & mask;
        }
        int past = 0;
        if (t[2]) {
            if (OF(same)(t, r)) {
                if (MERGE(t, r)) {
                    t[2] += r[2];
                    continue;
                }
            } else {
                past = r[1] < t[1];
            }
        }
        i64 place = r[1] & (PANES - 1);
        past |= s->panes[1][place] && s->panes[0][place] != r[1];
#if ORDERED
        i64 leaving = past ? r[1] : t[2] ? t[1] : empty_below;
        if (empty_below < leaving) {
            s->put = put, s->length = length, s->old = old;
            OF(flush_below)(s, leaving);
            put = s->put, length = s->length, old = s->old, empty_below = leaving;
        }
#endif
        if (past) {
            OF(copy)(&s->out[WORDS * (put++ & (s->room - 1))], r);
            straight++;
            continue;
        }
        if (t[2]) {
            OF(copy)(&s->out[WORDS * (put++ & (s->room - 1))], t);
            evicted++;
            s->panes[1][t[1] & (PANES - 1)]--;
            if (t[1] < due) old--;
        } else {
            s->ring[(head + length++) & mask] = slot;
        }
        s->panes[0][place] = r[1];
        s->panes[1][place]++;
        OF(copy)(t, r);
#if ORDERED
        if (r[1] < empty_below) empty_below = r[1];
#endif
    }
    s->put = put, s->length = length, s->old = old, s->evicted += evicted, s->straight += straight;
    if (length && (old || low >= c->open_until || c->open - s->delay > due)) OF(leave)(s, low, 0);
}

#undef OF
#undef JOINED
#undef JOINED_
#undef QUERY
#undef WORDS
#undef KEYS
#undef MERGE
#undef ORDERED
