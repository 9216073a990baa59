/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_config.h"

#include <errno.h>

#include "lib/base/test.h"
#include "lib/kube/kube_test.h"

static void test_current_context(void **state)
{
    AUTO(kube_config_free)
    struct kube_config *c = kube_test_config_text(
        "current-context: second\n"
        "contexts:\n"
        "- {name: first, context: {cluster: a, user: ua}}\n"
        "- {name: second, context: {cluster: b, user: ub}}\n"
        "clusters:\n"
        "- {name: a, cluster: {server: 'https://a:1'}}\n"
        "- {name: b, cluster: {server: 'https://b:2/', insecure-skip-tls-verify: true,\n"
        "   certificate-authority-data: UEVN}}\n"
        "users:\n"
        "- {name: ua, user: {token: wrong}}\n"
        "- {name: ub, user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}}\n");
    struct http_client_conf http = kube_config_http(c);
    AUTO(buf_done) struct buf auth = BUF_NULL;
    struct err e;

    (void)state;
    assert_string_equal(kube_config_server(c), "https://b:2");
    assert_string_equal(kube_config_namespace(c), "default");
    assert_true(http.insecure);
    assert_true(str_is(http.ca_pem, "PEM"));
    assert_true(str_is(http.cert_pem, "CERT"));
    assert_true(str_is(http.key_pem, "KEY"));
    EXPECT_OK(kube_config_auth_header(c, &auth, &e), &e);
    assert_int_equal(auth.len, 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void expect_auth(const struct kube_config *c, const char *want)
{
    AUTO(buf_done) struct buf auth = BUF_NULL;
    struct err e;

    EXPECT_OK(kube_config_auth_header(c, &auth, &e), &e);
    assert_string_equal(buf_cstr(&auth), want);
}

/* Kubelets replace the token; paths in a kubeconfig are relative to it. */
static void test_files_and_rotation(void **state)
{
    char dir[] = "/tmp/kube_config.XXXXXX";
    AUTO(mem_free) char *config = NULL;
    AUTO(mem_free) char *token = NULL;
    AUTO(mem_free) char *ca = NULL;
    AUTO(kube_config_free) struct kube_config *c = NULL;
    struct kube_config_env env = {.service_host = "ignored"};
    struct err e;

    (void)state;
    assert_non_null(mkdtemp(dir));
    config = xasprintf("%s/config", dir);
    token = xasprintf("%s/token", dir);
    ca = xasprintf("%s/ca.pem", dir);
    write_file(token, "one\n");
    write_file(ca, "CA");
    write_file(
        config,
        "current-context: x\n"
        "contexts: [{name: x, context: {cluster: c, user: u, namespace: here}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://c', certificate-authority: ca.pem}}]\n"
        "users: [{name: u, user: {tokenFile: token, token: not this}}]\n");
    env.kubeconfig = config;
    EXPECT_OK(kube_config_load(&c, &env, &e), &e);
    assert_string_equal(kube_config_namespace(c), "here");
    assert_true(str_is(kube_config_http(c).ca_pem, "CA"));
    expect_auth(c, "Authorization: Bearer one");
    write_file(token, "two");
    expect_auth(c, "Authorization: Bearer two");
    (void)unlink(token);
    {
        AUTO(buf_done) struct buf auth = BUF_NULL;

        assert_int_equal(kube_config_auth_header(c, &auth, &e), -ENOENT);
        assert_non_null(strstr(e.text, "token"));
    }
    (void)unlink(config);
    (void)unlink(ca);
    (void)rmdir(dir);
}

static void test_what_is_wrong_is_told(void **state)
{
    static const struct {
        const char *text, *told;
    } cases[] = {
        {"", "no cluster"},
        {"current-context: gone\n", "'gone'"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
         "clusters: [{name: c, cluster: {server: s, certificate-authority-data: '***'}}]\n",
         "not base64"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
         "clusters: [{name: c, cluster: {server: s, certificate-authority: /nonexistent}}]\n",
         "/nonexistent"},
        {"current-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"
         "clusters: [{name: c, cluster: {server: s}}]\nusers: [{name: u, user: {exec: {command: "
         "x}}}]\n",
         "exec"},
        {"a: [b\n", "kubeconfig"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char path[] = "/tmp/kube_config.XXXXXX";
        struct kube_config_env env = {.kubeconfig = path};
        struct kube_config *c = NULL;
        struct err e = {""};
        int fd = mkstemp(path);

        assert_true(fd >= 0);
        (void)close(fd);
        write_file(path, cases[i].text);
        assert_true(kube_config_load(&c, &env, &e) < 0);
        (void)unlink(path);
        assert_null(c);
        if (!strstr(e.text, cases[i].told))
            fail_msg("'%s' does not tell of '%s'", e.text, cases[i].told);
    }
}

static void test_outside_of_everything(void **state)
{
    struct kube_config_env env = {.kubeconfig = ""};
    struct kube_config *c = NULL;
    struct err e;

    (void)state;
    assert_true(kube_config_load(&c, &env, &e) < 0);
    env.kubeconfig = "/nonexistent";
    assert_int_equal(kube_config_load(&c, &env, &e), -ENOENT);
    assert_non_null(strstr(e.text, "/nonexistent"));
    assert_null(kube_config_free(NULL));
}

int main(void)
{
    return TEST_RUN(T(test_current_context), T(test_files_and_rotation),
                    T(test_what_is_wrong_is_told), T(test_outside_of_everything));
}
