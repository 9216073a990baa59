/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_lib.h"

#include <pthread.h>

#include "lib/base/digest.h"

enum {
    CONNECT_MS = 2000,
    WRITE_MS = 1000,
    PING_MS = 20000,
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
};

/* Its locks would spin before they wait, 2,000 times, for threads that share a core with theirs. */
static void open_library(void)
{
    (void)nats_Open(0);
}

void nats_lib_open(void)
{
    static pthread_once_t opened = PTHREAD_ONCE_INIT;

    (void)pthread_once(&opened, open_library);
}

static int64_t retry_delay(natsConnection *connection, int attempts, void *arg)
{
    int64_t wait = RETRY_MIN_MS;

    (void)connection;
    (void)arg;
    for (int i = 0; i < attempts && wait < RETRY_MAX_MS; i++)
        wait *= 2;
    wait = MIN(wait, (int64_t)RETRY_MAX_MS);
    return wait / 2 + (int64_t)(random_u64() % (uint64_t)(wait / 2 + 1));
}

static natsStatus set_credentials(natsOptions *o, const struct nats_link_conf *conf)
{
    if (conf->credentials_file)
        return natsOptions_SetUserCredentialsFromFiles(o, conf->credentials_file, NULL);
    if (conf->token)
        return natsOptions_SetToken(o, conf->token);
    if (conf->user || conf->password)
        return natsOptions_SetUserInfo(o, conf->user ? conf->user : "",
                                       conf->password ? conf->password : "");
    return natsOptions_SetUserInfo(o, "user", "user");
}

natsStatus nats_lib_options(natsOptions *o, const struct nats_link_conf *conf)
{
    natsStatus s = natsOptions_SetURL(o, conf->servers);

    s = s ? s : natsOptions_SetName(o, conf->name ? conf->name : "commutator");
    s = s ? s : set_credentials(o, conf);
    s = s ? s : natsOptions_SetTimeout(o, CONNECT_MS);
    s = s ? s : natsOptions_SetWriteDeadline(o, WRITE_MS);
    s = s ? s : natsOptions_SetPingInterval(o, PING_MS);
    s = s ? s : natsOptions_SetMaxReconnect(o, -1);
    /* One thread for all subscriptions: ours only push. */
    s = s ? s : natsOptions_UseGlobalMessageDelivery(o, true);
    /* Nothing is kept for a server that is away (0 would mean the default of 8 MB). */
    s = s ? s : natsOptions_SetReconnectBufSize(o, 1);
    return s ? s : natsOptions_SetCustomReconnectDelay(o, retry_delay, NULL);
}
