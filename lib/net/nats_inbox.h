/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the threads of a NATS link meet (nats_link.c): what arrived and waits for the loop, what is to
 * leave, and how the connection stands. Counted, for the library may still be in a callback of ours
 * when the link is gone. Internal: names nats.c's types.
 */
#pragma once

#include <pthread.h>

#include "lib/base/list.h"
#include "lib/base/ref.h"
#include "lib/net/nats_lib.h"
#include "lib/net/nats_outbox.h"

struct nats_arrived {
    struct list link;
    uint64_t subscription;
    natsMsg *msg;             /* owned */
    struct nats_message view; /* into it */
};

/* What the loop has subscribed to, or no longer wants. */
struct nats_order {
    struct list link;
    uint64_t id;   /* of the subscription */
    char *subject; /* owned; NULL: it has ended */
};

struct nats_inbox {
    struct ref ref;
    struct loop *loop;
    loop_fn deliver; /* its turn in the loop; gets a reference */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* closing or lost; outbox or orders are not empty any more */
    struct list messages;
    size_t n_messages, n_bytes, max;
    struct nats_link *link; /* loop thread only; NULL once freed */
    bool posted;            /* a delivery is on its way */
    bool kick_due;     /* loop thread only, as below: the keeper is told at the end of the turn */
    struct list husks; /* messages that were delivered */
    size_t n_husks, husk_bytes;
    bool closing; /* takes nothing any more */
    bool ended;   /* the library has nothing more to do with the link */
    pthread_cond_t has_ended;
    bool lost;                  /* the library closed the connection for good */
    bool up;                    /* as the library sees it; told once the connection is ready */
    bool ready;                 /* the server was told of all subscriptions, if it listens */
    natsConnection *connection; /* the keeper's until @closing; NULL before the first */
    struct list orders;
    struct nats_outbox outbox;
    struct nats_key key; /* of callbacks, which end before this does */
    int64_t payload_max; /* that the server takes */
    uint64_t received, dropped, reconnects, published, dropped_out;
};

/* @max: messages; 0 = 65536. @deliver is posted into @l when something has changed. */
struct nats_inbox *nats_inbox_new(struct loop *l, loop_fn deliver, size_t max);
struct nats_inbox *nats_inbox_ref(struct nats_inbox *in);
void nats_inbox_unref(struct nats_inbox *in);
/* With the lock held: the loop is to deliver. */
void nats_inbox_wake(struct nats_inbox *in);
/* Takes what @message owns; drops and counts it when there is no room. Any thread. */
void nats_inbox_push(struct nats_inbox *in, const struct nats_arrived *message);
/* To the keeper, which obeys in this order. @subject is copied; NULL: the subscription has ended. */
void nats_inbox_order(struct nats_inbox *in, uint64_t id, const char *subject);
void nats_order_free(struct nats_order *o);
size_t nats_inbox_size_of(const struct nats_message *m);
/* The library has a thread that destroys them, which the first one wakes: many at once cost little
 * more than one. */
void nats_inbox_free_messages(struct list *messages);
