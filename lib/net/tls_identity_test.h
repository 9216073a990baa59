/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Certificates for tests.
 */
#pragma once

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "lib/base/test.h"

/* A self-signed certificate, which is also its own authority. */
struct identity {
    EVP_PKEY *key;
    X509 *cert;
    struct buf key_pem, cert_pem;
};

static inline void take_bio(BIO *b, struct buf *out)
{
    char *data;
    long n = BIO_get_mem_data(b, &data);

    buf_put(out, data, (size_t)n);
    BIO_free(b);
}

static inline void add_extension(X509 *cert, int nid, const char *value)
{
    X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

    assert_non_null(x);
    assert_int_equal(X509_add_ext(cert, x, -1), 1);
    X509_EXTENSION_free(x);
}

/* @whose: "IP:127.0.0.1", "DNS:worker.example". */
static inline void identity_init_of(struct identity *id, const char *name, const char *whose)
{
    BIO *key_bio = BIO_new(BIO_s_mem()), *cert_bio = BIO_new(BIO_s_mem());
    X509_NAME *subject;

    *id = (struct identity){.key = EVP_EC_gen("P-256"), .cert = X509_new()};
    assert_non_null(id->key);
    (void)X509_set_version(id->cert, 2);
    (void)ASN1_INTEGER_set(X509_get_serialNumber(id->cert), 1);
    (void)X509_gmtime_adj(X509_getm_notBefore(id->cert), -3600);
    (void)X509_gmtime_adj(X509_getm_notAfter(id->cert), 3600);
    (void)X509_set_pubkey(id->cert, id->key);
    subject = X509_get_subject_name(id->cert);
    (void)X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1,
                                     -1, 0);
    (void)X509_set_issuer_name(id->cert, subject);
    add_extension(id->cert, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(id->cert, NID_subject_alt_name, whose);
    assert_true(X509_sign(id->cert, id->key, EVP_sha256()) > 0);
    (void)PEM_write_bio_PrivateKey(key_bio, id->key, NULL, NULL, 0, NULL, NULL);
    (void)PEM_write_bio_X509(cert_bio, id->cert);
    take_bio(key_bio, &id->key_pem);
    take_bio(cert_bio, &id->cert_pem);
}

static inline void identity_init(struct identity *id, const char *name)
{
    identity_init_of(id, name, "IP:127.0.0.1");
}

/* Into the file @dir/@name, whose path is returned. */
static inline char *identity_put(const char *dir, const char *name, struct str text)
{
    char *path = xasprintf("%s/%s", dir, name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text.ptr, 1, text.len, f), text.len);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline void identity_done(struct identity *id)
{
    X509_free(id->cert);
    EVP_PKEY_free(id->key);
    buf_done(&id->key_pem);
    buf_done(&id->cert_pem);
}
