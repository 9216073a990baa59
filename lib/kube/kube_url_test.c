/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/kube/kube_url.h"

#include "lib/base/test.h"
#include "lib/kube/kube_kinds.h"

static void test_paths(void **state)
{
    static const struct {
        const struct kube_kind *kind;
        const char *ns, *name, *subresource, *want;
    } cases[] = {
        {&KIND_POD, "ns", "p", NULL, "/api/v1/namespaces/ns/pods/p"},
        {&KIND_POD, NULL, NULL, NULL, "/api/v1/pods"},
        {&KIND_DGD, "ns", "g.h", "status",
         "/apis/nvidia.com/v1alpha1/namespaces/ns/dynamographdeployments/g.h/status"},
        /* A name stays one segment, whatever a user writes. */
        {&KIND_PVC, "ns", "../secrets", NULL,
         "/api/v1/namespaces/ns/persistentvolumeclaims/..%2Fsecrets"},
        {&KIND_PVC, "ns", "..", NULL, "/api/v1/namespaces/ns/persistentvolumeclaims/%2E%2E"},
        {&KIND_PVC, "ns", "a?b#c d%\xC3\xA9", NULL,
         "/api/v1/namespaces/ns/persistentvolumeclaims/a%3Fb%23c%20d%25%C3%A9"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(buf_done) struct buf out = BUF_NULL;

        kube_path(&out, cases[i].kind, cases[i].ns, cases[i].name, cases[i].subresource);
        assert_string_equal(buf_cstr(&out), cases[i].want);
    }
}

static void test_params(void **state)
{
    AUTO(buf_done) struct buf out = BUF_NULL;

    (void)state;
    buf_put_cstr(&out, "/x");
    kube_url_param(&out, "none", NULL);
    kube_url_param(&out, "labelSelector", "a=b,c in (d)");
    kube_url_param(&out, "limit", "500");
    assert_string_equal(buf_cstr(&out), "/x?labelSelector=a%3Db%2Cc%20in%20%28d%29&limit=500");
}

int main(void)
{
    return TEST_RUN(T(test_paths), T(test_params));
}
