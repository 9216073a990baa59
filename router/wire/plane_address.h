/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of the request plane: where an instance takes requests, and "ip:port" of a frontend.
 *
 *     tcp   "ip:port/<id hex>/<endpoint>"       as the record has it (wire.md §4.4)
 *     http  "http://host:port/v1/rpc/<endpoint>" likewise (§4.9)
 *     nats  "nats:<subject>/<endpoint>"         the record has the subject alone (§4.8)
 *
 * So one text says how to reach an instance, and each ends in the endpoint's name. IPv6 may stand in
 * brackets or bare, as the reference's own frontend writes it. Pure.
 */
#pragma once

#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum { PLANE_IP_SIZE = 64 };
enum plane_kind { PLANE_TCP, PLANE_NATS, PLANE_HTTP };
enum { PLANE_KINDS = PLANE_HTTP + 1 };

/* "tcp", "nats", "http", NULL: the words of DYN_REQUEST_PLANE, in the order of enum plane_kind. */
extern const char *const PLANE_WORDS[];

/* "tcp", "quic", NULL: the words of DYN_RESPONSE_PLANE. */
enum response_plane { RESPONSE_TCP, RESPONSE_QUIC };
extern const char *const RESPONSE_PLANE_WORDS[];

struct plane_address {
    enum plane_kind kind;
    char ip[PLANE_IP_SIZE]; /* of tcp: numeric, without brackets */
    uint16_t port;
    struct str
        path; /* of tcp: behind the first '/', may be empty; the subject; the whole URL. A view */
};

/* The text for what an Endpoint record says. */
void plane_address_put(struct buf *out, enum plane_kind kind, struct str address,
                       struct str endpoint);
/* -ENOTSUP, in words, of a plane that this project cannot speak. */
MUST_CHECK int response_plane_check(int kind, struct err *e);
/* A leading "tcp://" is skipped. -EINVAL in words; host names are not resolved here. */
MUST_CHECK int plane_address_parse(struct str text, struct plane_address *ret, struct err *e);
