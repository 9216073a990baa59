/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For instances*.c: entries, building of tables, difference of tables. The last two are pure.
 */
#pragma once

#include "lib/base/strmap.h"
#include "router/discovery/instances.h"

/* One record of the store, in its last good form. Texts are "" where the record has none. */
struct entry {
    bool good;    /* has been parsed once; otherwise only the key is known */
    bool ignored; /* of another namespace */
    bool lost;    /* the store does not tell it any more; kept */
    uint64_t lost_ms;
    bool bad_logged;
    bool refused, refused_logged; /* card that differs from its model's */
    uint64_t seq;                 /* order of first sight */
    uint64_t text;                /* hash of the text that it was read from */
    enum record_kind kind;
    enum transport transport;
    bool on_cpu; /* of an endpoint */
    uint64_t id; /* of a source: of its worker; its address is where that tells what was missed */
    uint32_t dp_rank; /* of a source */
    char *ns, *component, *endpoint, *topic, *address;
    struct model_card *card;
};

/* Sets `refused` of the entries as a side effect. */
struct model_table *model_table_build(struct strmap *entries, uint64_t version)
    __attribute__((returns_nonnull));
void model_table_diff(const struct model_table *old, const struct model_table *now,
                      void (*event)(void *arg, const struct instances_event *ev), void *arg);
