/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What parts of the process are configured with, out of the options.
 */
#include "router/frontend/frontend_conf.h"

#include "router/wire/plane_address.h"

static struct nats_link_conf nats_of(const struct frontend_conf *c, const char *program)
{
    return (struct nats_link_conf){.servers = c->nats_server,
                                   .user = c->nats_user,
                                   .password = c->nats_password,
                                   .token = c->nats_token,
                                   .credentials_file = c->nats_credentials,
                                   .name = program};
}

struct plane_client_conf frontend_conf_plane(const struct frontend_conf *c, const char *program)
{
    return (struct plane_client_conf){.advertise_ip = c->pod_ip ? c->pod_ip : c->tcp_rpc_host,
                                      .connect_ms = c->connect_ms,
                                      .ack_ms = c->ack_ms,
                                      .nats_ack_ms = c->nats_ack_ms,
                                      .http_ack_ms = c->http_ack_ms,
                                      .call_home_ms = c->call_home_ms,
                                      .first_item_ms = c->first_token_ms,
                                      .gap_ms = c->gap_ms,
                                      .pool_max = c->pool_max,
                                      .nats = nats_of(c, program),
                                      .nats_early = c->request_plane == PLANE_NATS};
}

struct kv_events_conf frontend_conf_events(const struct frontend_conf *c, const char *program)
{
    return (struct kv_events_conf){
        .nats = nats_of(c, program),
        .zmq = c->event_plane == EVENT_PLANE_ZMQ,
        .brokers = c->zmq_brokers,
        .find_brokers = c->zmq_find_brokers,
        .stream_max_age_s = c->stream_max_age_ms / 1000,
        .snapshot_threshold = c->snapshot_threshold,
        .reset_states = c->reset_states,
        .index_folder = c->index_folder,
        .index_period_ms = c->index_period_ms,
    };
}
