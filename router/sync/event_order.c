/* SPDX-License-Identifier: Apache-2.0 */
#include "router/sync/event_order.h"

#include <assert.h>

#include "lib/base/list.h"
#include "lib/base/map64.h"
#include "router/sync/event_queue.h"

enum {
    RETRY_MS = 200,
    DOUBT_MS = 1000,
    DOUBT_SHIFT_MAX = 8,
    DOUBT_FORGET_MS = 60000,
    CLOCK_STEP_MS = 10000, /* no message is on its way for that long: the sender's clock was set */
};

/* What a rank is to be asked for; a later one makes those before it needless. */
enum want { WANT_NOTHING, WANT_NEWS, WANT_RANGE, WANT_DUMP };

struct line {
    struct worker_rank rank;
    struct peer *peer;
    bool positioned;              /* `next` means something */
    uint64_t next;                /* id that is applied next */
    uint64_t seen_end;            /* every id that was seen is below */
    uint64_t heard_end;           /* the same for those that no answer told */
    uint64_t newest_ms, epoch_ms; /* when the newest was sent, and the first of this engine */
    struct event_queue held;

    enum want want;
    struct list waiting; /* linked while it wants and does not ask */
    uint64_t question;   /* that is open, 0 = none */
    enum event_question_kind kind;
    uint64_t asked_last, asked_end; /* last id that was asked for, and seen_end then */
    unsigned attempts;
    uint64_t not_before_ms;
    bool overflowed;  /* a dump must follow */
    bool resumed;     /* its blocks are from a file, and its worker has not appeared yet */
    uint64_t resets;  /* how often its blocks were replaced */
    uint64_t calm_ms; /* no dump for a doubt before */
    unsigned doubts;
};

struct peer {
    uint64_t id;
    bool known, askable;
    struct line **lines;
    size_t n_lines;
    uint64_t seen_ms;
    bool asking;
};

struct event_order {
    struct event_order_sink sink;
    struct map64 peers;     /* worker id -> struct peer */
    struct map64 questions; /* number -> struct line, those open */
    struct list waiting;    /* lines */
    uint64_t last_question;
    struct event_order_stats stats;
    /* the answer that is being fed */
    struct line *answering;
    bool is_dump;
    struct opt_u64 dump_last;
    uint64_t answer_from, answer_end;
};

struct event_order *event_order_new(const struct event_order_sink *sink)
{
    struct event_order *o = xcalloc(1, sizeof(*o));

    o->sink = *sink;
    list_init(&o->waiting);
    return o;
}

static void note(struct event_order *o, const struct line *l, enum event_note what, uint64_t first,
                 uint64_t last)
{
    o->sink.note(o->sink.arg, what, l->rank, first, last);
}

/* --- held events ------------------------------------------------------------------------------ */

static void drop_head(struct event_order *o, struct line *l)
{
    o->stats.held--;
    o->stats.held_bytes -= event_weight(event_queue_head(&l->held));
    event_queue_drop_head(&l->held);
}

static void drop_held(struct event_order *o, struct line *l)
{
    o->stats.held -= l->held.n;
    o->stats.held_bytes -= event_queue_weight(&l->held);
    event_queue_done(&l->held);
}

/* Those held make room when there is too much: the dump that follows has what they said. */
static void hold(struct event_order *o, struct line *l, const struct kv_event *ev)
{
    size_t weight = event_weight(ev);

    if (event_queue_weight(&l->held) + weight > EVENT_HELD_BYTES ||
        o->stats.held_bytes + weight > EVENT_HELD_BYTES_ALL) {
        note(o, l, EVENT_OVERFLOW, l->held.n + 1, 0);
        drop_held(o, l);
        l->overflowed = true;
        return;
    }
    event_queue_put(&l->held, ev);
    o->stats.held++;
    o->stats.held_bytes += weight;
}

/* --- wishes ----------------------------------------------------------------------------------- */

static void close_question(struct event_order *o, struct line *l)
{
    if (!l->question)
        return;
    (void)map64_remove(&o->questions, l->question, NULL);
    l->question = 0;
    l->peer->asking = false;
    o->stats.asking--;
}

static void withdraw(struct event_order *o, struct line *l)
{
    uint64_t question = l->question;

    if (!question)
        return;
    close_question(o, l);
    o->sink.withdraw(o->sink.arg, question);
}

static void stop_waiting(struct event_order *o, struct line *l)
{
    if (!list_linked(&l->waiting))
        return;
    list_remove(&l->waiting);
    o->stats.waiting--;
}

static void wait_until(struct event_order *o, struct line *l, uint64_t ms)
{
    l->not_before_ms = ms;
    if (list_linked(&l->waiting))
        return;
    list_append(&o->waiting, &l->waiting);
    o->stats.waiting++;
}

static void want_nothing(struct event_order *o, struct line *l)
{
    withdraw(o, l);
    stop_waiting(o, l);
    l->want = WANT_NOTHING;
    l->attempts = 0;
}

/* Whether everything is held that comes: the answer replaces, or goes on from, what is there now. */
static bool holds_all(const struct line *l)
{
    return l->question && l->kind != EVENT_ASK_RANGE;
}

/* --- applying --------------------------------------------------------------------------------- */

static void doubt(struct event_order *o, struct line *l, uint64_t now_ms);

static void apply(struct event_order *o, struct line *l, const struct kv_event *ev, uint64_t now_ms)
{
    if (!o->sink.apply(o->sink.arg, ev, true))
        doubt(o, l, now_ms);
}

/* Applies what waited, as it is: no answer will come, or a dump will put all right. */
static void flush(struct event_order *o, struct line *l)
{
    const struct kv_event *ev;

    while ((ev = event_queue_head(&l->held))) {
        (void)o->sink.apply(o->sink.arg, ev, true);
        drop_head(o, l);
    }
    l->next = l->seen_end;
}

static void wish(struct event_order *o, struct line *l, enum want want, uint64_t not_before_ms)
{
    if (!l->peer->askable || want <= l->want)
        return;
    withdraw(o, l);
    l->want = want;
    l->attempts = 0;
    if (want == WANT_DUMP)
        flush(o, l);
    wait_until(o, l, not_before_ms);
}

/* @trusted: what waited follows what is there; else a dump may be ahead of it. */
static void drain(struct event_order *o, struct line *l, bool trusted, uint64_t now_ms)
{
    const struct kv_event *ev;

    while ((ev = event_queue_head(&l->held)) && ev->event_id <= l->next) {
        bool known = ev->event_id + 1 < l->next || o->sink.apply(o->sink.arg, ev, true);

        if (ev->event_id == l->next)
            l->next++;
        drop_head(o, l);
        if (!known && trusted && l->want < WANT_DUMP) {
            doubt(o, l, now_ms);
            return; /* that may have flushed the rest */
        }
    }
}

/* After the position or what is held has changed: is anything missing? */
static void look_for_gap(struct event_order *o, struct line *l, uint64_t now_ms)
{
    const struct kv_event *head = event_queue_head(&l->held);
    uint64_t end = head ? head->event_id : l->seen_end;

    if (l->overflowed) {
        l->overflowed = false;
        wish(o, l, WANT_DUMP, now_ms);
    } else if (!l->positioned || l->next >= end) {
        if (l->want == WANT_RANGE)
            want_nothing(o, l);
    } else if (l->want < WANT_RANGE) {
        note(o, l, EVENT_GAP, l->next, end - 1);
        if (l->peer->askable)
            wish(o, l, WANT_RANGE, now_ms);
        else
            flush(o, l);
    } else if (l->want == WANT_RANGE && l->question && l->next > l->asked_last) {
        withdraw(o, l); /* late ones closed that gap, here is another */
        wait_until(o, l, now_ms);
    }
}

static void doubt(struct event_order *o, struct line *l, uint64_t now_ms)
{
    uint64_t when = MAX(now_ms, l->calm_ms);

    if (!l->peer->askable || l->want == WANT_DUMP)
        return;
    if (now_ms > l->calm_ms + DOUBT_FORGET_MS)
        l->doubts = 0;
    l->calm_ms = when + ((uint64_t)DOUBT_MS << MIN(l->doubts, (unsigned)DOUBT_SHIFT_MAX));
    l->doubts++;
    wish(o, l, WANT_DUMP, when);
}

/* --- workers ---------------------------------------------------------------------------------- */

static struct line *find_line(const struct peer *p, uint32_t dp_rank)
{
    for (size_t i = 0; i < p->n_lines; i++)
        if (p->lines[i]->rank.dp_rank == dp_rank)
            return p->lines[i];
    return NULL;
}

static struct line *add_line(struct event_order *o, struct peer *p, uint32_t dp_rank)
{
    struct line *l = xcalloc(1, sizeof(*l));

    l->rank = (struct worker_rank){p->id, dp_rank};
    l->peer = p;
    p->lines = xreallocarray(p->lines, p->n_lines + 1, sizeof(struct line *));
    p->lines[p->n_lines++] = l;
    o->stats.ranks++;
    return l;
}

static void line_free(struct event_order *o, struct line *l)
{
    want_nothing(o, l);
    drop_held(o, l);
    o->stats.ranks--;
    free(l);
}

static void peer_free(struct event_order *o, struct peer *p)
{
    for (size_t i = 0; i < p->n_lines; i++)
        line_free(o, p->lines[i]);
    o->stats.strangers -= !p->known;
    free(p->lines);
    free(p);
}

static struct peer *add_peer(struct event_order *o, uint64_t worker_id)
{
    struct peer *p = xcalloc(1, sizeof(*p));

    p->id = worker_id;
    o->stats.strangers++;
    map64_put_ptr(&o->peers, worker_id, p);
    return p;
}

struct event_order *event_order_free(struct event_order *o)
{
    uint64_t id, ptr;
    size_t at = 0;

    if (!o)
        return NULL;
    while (map64_next(&o->peers, &at, &id, &ptr)) {
        struct peer *p = (struct peer *)(uintptr_t)ptr;

        for (size_t i = 0; i < p->n_lines; i++)
            close_question(o, p->lines[i]);
        peer_free(o, p);
    }
    map64_done(&o->peers);
    map64_done(&o->questions);
    free(o);
    return NULL;
}

static void drop_lines_outside(struct event_order *o, struct peer *p, uint32_t first, uint32_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < p->n_lines; i++) {
        struct line *l = p->lines[i];

        if (l->rank.dp_rank < first || l->rank.dp_rank - first >= n)
            line_free(o, l);
        else
            p->lines[kept++] = l;
    }
    p->n_lines = kept;
}

/* Nobody can say what came since. */
static void disbelieve(struct event_order *o, struct line *l)
{
    o->sink.clear(o->sink.arg, l->rank);
    l->resumed = false;
    l->positioned = l->held.n > 0;
    if (l->positioned)
        flush(o, l);
    else
        l->next = l->seen_end = l->heard_end = l->newest_ms = 0;
}

void event_order_put_worker(struct event_order *o, uint64_t worker_id, uint32_t dp_start,
                            uint32_t dp_size, bool askable, uint64_t now_ms)
{
    struct peer *p = map64_find_ptr(&o->peers, worker_id);
    uint32_t n = MIN(MAX(dp_size, 1u), (uint32_t)EVENT_RANKS_MAX);
    bool is_new;

    if (!p)
        p = add_peer(o, worker_id);
    is_new = !p->known || !p->askable;
    o->stats.strangers -= !p->known;
    p->known = true;
    p->askable = askable;
    drop_lines_outside(o, p, dp_start, n);
    for (uint32_t i = 0; i < n; i++) {
        struct line *l = find_line(p, dp_start + i);

        if (l && !is_new)
            continue;
        if (!l)
            l = add_line(o, p, dp_start + i);
        if (l->resumed && !askable)
            disbelieve(o, l);
        wish(o, l, l->resumed ? WANT_NEWS : WANT_DUMP, now_ms);
        l->resumed = false;
    }
}

void event_order_remove_worker(struct event_order *o, uint64_t worker_id)
{
    uint64_t ptr;

    if (map64_remove(&o->peers, worker_id, &ptr))
        peer_free(o, (struct peer *)(uintptr_t)ptr);
}

void event_order_tick(struct event_order *o, uint64_t now_ms)
{
    uint64_t silent[64], id, ptr;
    size_t n = 0, at = 0;

    if (o->stats.strangers == 0)
        return;
    while (n < ARRAY_LEN(silent) && map64_next(&o->peers, &at, &id, &ptr)) {
        const struct peer *p = (const struct peer *)(uintptr_t)ptr;

        if (!p->known && p->seen_ms + EVENT_STRANGER_MS <= now_ms)
            silent[n++] = id;
    }
    for (size_t i = 0; i < n; i++) {
        event_order_remove_worker(o, silent[i]);
        o->sink.forget(o->sink.arg, silent[i]);
    }
}

/* --- blocks in a file ------------------------------------------------------------------------- */

bool event_order_position(const struct event_order *o, struct worker_rank w,
                          struct event_position *ret)
{
    const struct peer *p = map64_find_ptr(&o->peers, w.worker_id);
    const struct line *l = p ? find_line(p, w.dp_rank) : NULL;

    if (!l || !l->positioned || !p->known || l->want > WANT_NEWS || l == o->answering)
        return false;
    *ret = (struct event_position){.next = l->next, .newest_ms = l->newest_ms, .resets = l->resets};
    return true;
}

bool event_order_resume(struct event_order *o, struct worker_rank w, struct event_position at,
                        uint64_t now_ms)
{
    struct peer *p = map64_find_ptr(&o->peers, w.worker_id);
    struct line *l;

    if (p ? p->known || p->n_lines >= EVENT_RANKS_MAX || find_line(p, w.dp_rank)
          : o->stats.strangers >= EVENT_STRANGERS_MAX)
        return false;
    if (at.next >= EVENT_ID_NEVER)
        return false;
    if (!p)
        p = add_peer(o, w.worker_id);
    p->seen_ms = now_ms;
    l = add_line(o, p, w.dp_rank);
    l->positioned = l->resumed = true;
    l->next = l->seen_end = l->heard_end = at.next;
    l->newest_ms = at.newest_ms;
    return true;
}

/* --- live events ------------------------------------------------------------------------------ */

/* The rank that the event is of; NULL: nobody's. */
static struct line *line_of(struct event_order *o, const struct kv_event *ev, uint64_t now_ms)
{
    struct peer *p = map64_find_ptr(&o->peers, ev->worker_id);
    struct line *l;

    if (!p && o->stats.strangers >= EVENT_STRANGERS_MAX)
        return NULL;
    if (!p)
        p = add_peer(o, ev->worker_id);
    p->seen_ms = now_ms;
    l = find_line(p, ev->dp_rank);
    if (!l && (p->known || p->n_lines >= EVENT_RANKS_MAX))
        return NULL;
    return l ? l : add_line(o, p, ev->dp_rank);
}

static void restart(struct event_order *o, struct line *l, uint64_t sent_ms)
{
    note(o, l, EVENT_RESTARTED, 0, l->seen_end ? l->seen_end - 1 : 0);
    l->resets++;
    want_nothing(o, l);
    drop_held(o, l);
    o->sink.clear(o->sink.arg, l->rank);
    l->overflowed = false;
    l->positioned = true;
    l->next = l->seen_end = l->heard_end = 0;
    l->newest_ms = l->epoch_ms = sent_ms;
}

/*
 * Ids begin again: an old id that was sent after the newest one. What only an answer has told may
 * still arrive, from a sender that had lost its connection.
 */
static bool shows_restart(const struct line *l, uint64_t id, uint64_t sent_ms)
{
    uint64_t end = l->heard_end ? l->heard_end : l->seen_end;

    if (!end || id + 1 >= end)
        return false;
    if (!sent_ms)
        return id == 0;
    return sent_ms > l->newest_ms || sent_ms + CLOCK_STEP_MS < l->newest_ms;
}

static bool is_stale(const struct line *l, uint64_t sent_ms)
{
    return sent_ms && sent_ms < l->epoch_ms && sent_ms + CLOCK_STEP_MS >= l->epoch_ms;
}

/*
 * Of what says a word for its tier that is not known here, it is not known either whose numbers it
 * has: it may fill a place, and never makes a gap.
 */
static void unknown_tier(struct event_order *o, struct line *l, const struct kv_event *ev,
                         uint64_t now_ms)
{
    (void)o->sink.apply(o->sink.arg, ev, true);
    if (!l->positioned || holds_all(l) || l->resumed || ev->event_id != l->next)
        return;
    l->next++;
    l->seen_end = MAX(l->seen_end, l->next);
    drain(o, l, true, now_ms);
    look_for_gap(o, l, now_ms);
}

static void in_order(struct event_order *o, struct line *l, const struct kv_event *ev,
                     uint64_t now_ms)
{
    uint64_t id = ev->event_id;
    bool hole = id > l->next && l->positioned;

    if (id + 1 < l->next) {
        note(o, l, EVENT_DUPLICATE, id, id);
    } else if (holds_all(l) || l->resumed || (hole && l->want != WANT_DUMP && l->peer->askable)) {
        hold(o, l, ev);
    } else {
        if (hole && l->want != WANT_DUMP)
            note(o, l, EVENT_GAP, l->next, id - 1);
        l->next = MAX(l->next, id + 1);
        l->positioned = true;
        apply(o, l, ev, now_ms);
        drain(o, l, true, now_ms);
    }
    if (!holds_all(l) && !l->resumed)
        look_for_gap(o, l, now_ms);
}

void event_order_live(struct event_order *o, const struct kv_event *ev, uint64_t sent_ms,
                      uint64_t now_ms)
{
    struct line *l = line_of(o, ev, now_ms);

    if (!l || ev->event_id >= EVENT_ID_NEVER) {
        o->sink.note(o->sink.arg, EVENT_UNKNOWN_RANK,
                     (struct worker_rank){ev->worker_id, ev->dp_rank}, ev->event_id, ev->event_id);
    } else if (ev->tier == KV_TIER_UNKNOWN) {
        unknown_tier(o, l, ev, now_ms);
    } else if (is_stale(l, sent_ms)) {
        note(o, l, EVENT_STALE, ev->event_id, ev->event_id);
    } else {
        if (shows_restart(l, ev->event_id, sent_ms))
            restart(o, l, sent_ms);
        if (ev->event_id >= l->heard_end) {
            l->heard_end = ev->event_id + 1;
            l->seen_end = MAX(l->seen_end, l->heard_end);
            l->newest_ms = sent_ms;
        }
        in_order(o, l, ev, now_ms);
    }
}

void event_order_doubt(struct event_order *o, struct worker_rank w, uint64_t now_ms)
{
    struct peer *p = map64_find_ptr(&o->peers, w.worker_id);
    struct line *l = p ? find_line(p, w.dp_rank) : NULL;

    if (l)
        doubt(o, l, now_ms);
}

static void check_peer(struct event_order *o, const struct peer *p, uint64_t now_ms)
{
    for (size_t i = 0; i < p->n_lines; i++)
        wish(o, p->lines[i], p->lines[i]->positioned ? WANT_NEWS : WANT_DUMP, now_ms);
}

bool event_order_check_worker(struct event_order *o, uint64_t worker_id, uint64_t now_ms)
{
    const struct peer *p = map64_find_ptr(&o->peers, worker_id);

    if (p)
        check_peer(o, p, now_ms);
    return p;
}

void event_order_check(struct event_order *o, uint64_t now_ms)
{
    uint64_t id, ptr;
    size_t at = 0;

    while (map64_next(&o->peers, &at, &id, &ptr))
        check_peer(o, (const struct peer *)(uintptr_t)ptr, now_ms);
}

/* --- questions -------------------------------------------------------------------------------- */

static void put_question(struct event_order *o, struct line *l, struct event_question *ret)
{
    const struct kv_event *head = event_queue_head(&l->held);
    struct event_question q = {.number = ++o->last_question, .worker = l->rank};

    switch (l->want) {
    case WANT_NEWS:
        q.kind = EVENT_ASK_NEWS;
        q.first = OPT_U64(l->next);
        break;
    case WANT_RANGE:
        q.kind = EVENT_ASK_RANGE;
        q.first = OPT_U64(l->next);
        q.last = OPT_U64((head ? head->event_id : l->seen_end) - 1);
        break;
    case WANT_DUMP:
    case WANT_NOTHING:
        q.kind = l->positioned ? EVENT_ASK_DUMP : EVENT_ASK_POSITION;
        if (!l->positioned)
            q.first = OPT_U64(EVENT_ID_NEVER);
        break;
    }
    l->question = q.number;
    l->kind = q.kind;
    l->asked_last = q.last.v;
    l->asked_end = l->seen_end;
    l->peer->asking = true;
    o->stats.asking++;
    map64_put_ptr(&o->questions, q.number, l);
    *ret = q;
}

bool event_order_next(struct event_order *o, uint64_t now_ms, struct event_question *ret)
{
    if (o->stats.asking >= EVENT_QUESTIONS_MAX)
        return false;
    LIST_FOREACH (l, &o->waiting, struct line, waiting) {
        if (l->not_before_ms > now_ms || l->peer->asking)
            continue;
        stop_waiting(o, l);
        put_question(o, l, ret);
        return true;
    }
    return false;
}

uint64_t event_order_wake_ms(const struct event_order *o)
{
    uint64_t ms = UINT64_MAX;

    if (o->stats.asking >= EVENT_QUESTIONS_MAX)
        return ms; /* an answer comes first */
    LIST_FOREACH (l, &o->waiting, struct line, waiting)
        if (!l->peer->asking)
            ms = MIN(ms, l->not_before_ms);
    return ms;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* What was asked is known now. */
static void settle(struct event_order *o, struct line *l, bool trusted, uint64_t now_ms)
{
    close_question(o, l);
    want_nothing(o, l);
    drain(o, l, trusted, now_ms);
    look_for_gap(o, l, now_ms);
}

bool event_order_answer_begin(struct event_order *o, uint64_t question, bool is_dump,
                              struct opt_u64 last)
{
    struct line *l = map64_find_ptr(&o->questions, question);

    assert(!o->answering);
    if (!l)
        return false;
    o->answering = l;
    o->is_dump = is_dump;
    o->dump_last = last;
    o->answer_from = o->answer_end = l->next;
    if (is_dump) {
        o->sink.clear(o->sink.arg, l->rank);
        l->resets++;
    }
    return true;
}

void event_order_answer_feed(struct event_order *o, const struct kv_event *ev)
{
    const struct line *l = o->answering;

    if (ev->worker_id != l->rank.worker_id || ev->dp_rank != l->rank.dp_rank)
        return;
    if (!o->is_dump) {
        if (ev->event_id < o->answer_from || ev->event_id >= EVENT_ID_NEVER)
            return;
        o->answer_end = MAX(o->answer_end, ev->event_id + 1);
    }
    (void)o->sink.apply(o->sink.arg, ev, false);
}

static void end_dump(struct event_order *o, struct line *l, uint64_t now_ms)
{
    bool exact = o->dump_last.set && o->dump_last.v < EVENT_ID_NEVER;

    /* A worker that answers the question for its position with a dump has told no event yet. */
    l->positioned = true;
    l->next = l->asked_end;
    if (exact)
        l->next = MAX(l->next, o->dump_last.v + 1);
    l->seen_end = MAX(l->seen_end, l->next);
    settle(o, l, exact, now_ms);
}

static void end_events(struct event_order *o, struct line *l, uint64_t now_ms)
{
    bool told_something = o->answer_end > l->next;
    bool missed = l->kind == EVENT_ASK_RANGE && !told_something;

    l->next = MAX(l->next, o->answer_end);
    l->seen_end = MAX(l->seen_end, l->next);
    if (missed) {
        close_question(o, l);
        wish(o, l, WANT_DUMP, now_ms);
    } else {
        settle(o, l, true, now_ms);
    }
}

void event_order_answer_end(struct event_order *o, bool whole, uint64_t now_ms)
{
    struct line *l = o->answering;

    o->answering = NULL;
    if (!whole)
        event_order_answer_failed(o, l->question, false, now_ms);
    else if (o->is_dump)
        end_dump(o, l, now_ms);
    else
        end_events(o, l, now_ms);
}

void event_order_answer_too_new(struct event_order *o, uint64_t question, uint64_t newest,
                                uint64_t now_ms)
{
    struct line *l = map64_find_ptr(&o->questions, question);

    if (!l)
        return;
    if (newest >= EVENT_ID_NEVER) {
        event_order_answer_failed(o, question, false, now_ms);
        return;
    }
    if (l->kind == EVENT_ASK_NEWS && newest + 1 == l->next) {
        settle(o, l, true, now_ms);
        return;
    }
    close_question(o, l);
    if (l->kind != EVENT_ASK_POSITION && newest + 1 < l->next)
        restart(o, l, l->newest_ms);
    l->positioned = true;
    l->seen_end = MAX(l->seen_end, newest + 1);
    l->want = WANT_NOTHING;
    wish(o, l, WANT_DUMP, now_ms);
}

static void give_up(struct event_order *o, struct line *l, bool never)
{
    note(o, l, EVENT_GAVE_UP, l->next, l->seen_end);
    if (never)
        l->peer->askable = false;
    l->overflowed = false;
    want_nothing(o, l);
    if (l->seen_end) {
        l->positioned = true;
        flush(o, l);
    }
}

void event_order_answer_failed(struct event_order *o, uint64_t question, bool never,
                               uint64_t now_ms)
{
    struct line *l = map64_find_ptr(&o->questions, question);

    if (!l)
        return;
    close_question(o, l);
    if (never || ++l->attempts >= EVENT_ATTEMPTS) {
        give_up(o, l, never);
        return;
    }
    wait_until(o, l, now_ms + ((uint64_t)RETRY_MS << (l->attempts - 1)));
    if (l->want == WANT_DUMP) { /* the next one will know what was held during this one */
        l->positioned |= l->seen_end > 0;
        flush(o, l);
    } else if (l->want == WANT_NEWS) {
        drain(o, l, true, now_ms);
        look_for_gap(o, l, now_ms);
    }
}

struct event_order_stats event_order_stats(const struct event_order *o)
{
    return o->stats;
}
