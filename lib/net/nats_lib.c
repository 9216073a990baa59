/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/net/nats_lib.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/mem.h"
#include "lib/base/str.h"

enum {
    CONNECT_MS = 2000,
    WRITE_MS = 1000,
    PING_MS = 20000,
    RETRY_MIN_MS = 100,
    RETRY_MAX_MS = 5000,
    IO_BYTES = 128 << 10,
};

/*
 * The library's threads, which have no end that could be waited for surely, use OpenSSL until the
 * process is gone, so that OpenSSL may not free what it has when main returns. It takes this as its
 * first call only, and others call it before there is a link.
 */
__attribute__((constructor)) static void keep_openssl(void)
{
    (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

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

/* Any thread of the library. */
static natsStatus sign(char **ret_why, unsigned char **ret_signature, int *ret_len,
                       const char *challenge, void *arg)
{
    const struct nats_key *key = arg;

    *ret_why = NULL;
    return nats_Sign(key->seed, challenge, ret_signature, ret_len);
}

/* In the order of the reference. */
static natsStatus set_credentials(natsOptions *o, const struct nats_link_conf *conf,
                                  const struct nats_key *key)
{
    if (conf->user && conf->password)
        return natsOptions_SetUserInfo(o, conf->user, conf->password);
    if (conf->token)
        return natsOptions_SetToken(o, conf->token);
    if (conf->nkey)
        return natsOptions_SetNKey(o, key->public_half, sign, (void *)(uintptr_t)key);
    if (conf->credentials_file)
        return natsOptions_SetUserCredentialsFromFiles(o, conf->credentials_file, NULL);
    if (conf->user || conf->password)
        return natsOptions_SetUserInfo(o, conf->user ? conf->user : "",
                                       conf->password ? conf->password : "");
    return natsOptions_SetUserInfo(o, "user", "user");
}

/* Of the only server that is named; NULL when there are several. */
static char *host_of(const char *servers)
{
    struct str rest = str_from(servers), host;

    if (strchr(servers, ','))
        return NULL;
    if (strstr(servers, "://"))
        rest = str_from(strstr(servers, "://") + 3);
    if (strrchr(rest.ptr, '@'))
        rest = str_from(strrchr(rest.ptr, '@') + 1);
    host = str_head(rest, strcspn(rest.ptr, ":/"));
    return host.len && host.ptr[0] != '[' ? str_dup(host) : NULL;
}

static bool may_be_secure(const struct nats_link_conf *conf)
{
    return conf->tls.ca || conf->tls.cert || conf->tls.unverified ||
           strstr(conf->servers, "tls://");
}

/*
 * The library itself looks at the chain of a certificate, and at its name only when told which. What
 * it is told here makes it set up TLS, needed or not.
 */
static natsStatus set_tls(natsOptions *o, const struct nats_link_conf *conf)
{
    const struct nats_tls *tls = &conf->tls;
    AUTO(mem_free) char *host = may_be_secure(conf) ? host_of(conf->servers) : NULL;
    natsStatus s = NATS_OK;

    if (tls->ca)
        s = natsOptions_LoadCATrustedCertificates(o, tls->ca);
    if (s == NATS_OK && tls->cert)
        s = natsOptions_LoadCertificatesChain(o, tls->cert, tls->key);
    if (s == NATS_OK && tls->unverified)
        s = natsOptions_SkipServerVerification(o, true);
    else if (s == NATS_OK && host)
        s = natsOptions_SetExpectedHostname(o, host);
    return s;
}

natsStatus nats_lib_options(natsOptions *o, const struct nats_link_conf *conf,
                            const struct nats_key *key)
{
    natsStatus s = natsOptions_SetURL(o, conf->servers);

    s = s ? s : natsOptions_SetName(o, conf->name ? conf->name : "commutator");
    s = s ? s : set_credentials(o, conf, key);
    s = s ? s : set_tls(o, conf);
    s = s ? s : natsOptions_SetTimeout(o, CONNECT_MS);
    s = s ? s : natsOptions_SetWriteDeadline(o, WRITE_MS);
    s = s ? s : natsOptions_SetPingInterval(o, PING_MS);
    s = s ? s : natsOptions_SetMaxReconnect(o, -1);
    /* One thread for all subscriptions: ours only push. */
    s = s ? s : natsOptions_UseGlobalMessageDelivery(o, true);
    s = s ? s : natsOptions_SetNoEcho(o, conf->not_to_self);
    s = s ? s : natsOptions_SetSendAsap(o, conf->each_at_once);
    /* The KV events of a long prompt shall not take a dozen reads. */
    s = s ? s : natsOptions_SetIOBufSize(o, IO_BYTES);
    /* Nothing is kept for a server that is away (0 would mean the default of 8 MB). */
    s = s ? s : natsOptions_SetReconnectBufSize(o, 1);
    return s ? s : natsOptions_SetCustomReconnectDelay(o, retry_delay, NULL);
}
