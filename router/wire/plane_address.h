/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of the request plane: "ip:port/path" of an instance, "ip:port" of a frontend.
 *
 * IPv6 may stand in brackets or bare, as the reference's own frontend writes it. Pure.
 */
#pragma once

#include <stdint.h>

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;

enum { PLANE_IP_SIZE = 64 };

struct plane_address {
    char ip[PLANE_IP_SIZE]; /* numeric, without brackets */
    uint16_t port;
    struct str path; /* behind the first '/', a view; empty when there is none */
};

/* A leading "tcp://" is skipped. -EINVAL in words; host names are not resolved here. */
MUST_CHECK int plane_address_parse(struct str text, struct plane_address *ret, struct err *e);
