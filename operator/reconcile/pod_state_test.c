/* SPDX-License-Identifier: Apache-2.0 */
#include "operator/reconcile/pod_state.h"

#include "lib/base/test.h"

#define UNSCHEDULED                                                                                \
    "{\"status\":{\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"False\",\"reason\":"     \
    "\"Unschedulable\","                                                                           \
    "\"message\":\"0/1 nodes are available\"}]}}"
#define WAITING(list, reason, message)                                                             \
    "{\"status\":{\"" list                                                                         \
    "\":[{\"state\":{\"running\":{}}},{\"state\":{\"waiting\":{\"reason\":\"" reason "\"" message  \
    "}}}]}}"

static void test_reasons(void **state)
{
    static const struct {
        const char *pod, *want;
    } cases[] = {
        {"{}", NULL},
        {"{\"status\":{\"conditions\":[{\"type\":\"PodScheduled\",\"status\":\"True\"}]}}", NULL},
        {UNSCHEDULED, "Unschedulable: 0/1 nodes are available"},
        {WAITING("containerStatuses", "ContainerCreating", ""), NULL},
        {WAITING("containerStatuses", "PodInitializing", ""), NULL},
        {WAITING("containerStatuses", "ErrImagePull", ",\"message\":\"no such image\""),
         "ErrImagePull: no such image"},
        {WAITING("containerStatuses", "CrashLoopBackOff", ""), "CrashLoopBackOff"},
        {WAITING("initContainerStatuses", "ImagePullBackOff", ""), "ImagePullBackOff"},
        {"{\"status\":{\"containerStatuses\":[{\"state\":{\"terminated\":{\"exitCode\":1}}}]}}",
         NULL},
        {"{\"status\":{\"conditions\":{},\"containerStatuses\":7}}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO(json_free) struct json *pod = NULL;
        AUTO(mem_free) char *got = NULL;
        struct err e;

        EXPECT_OK(json_parse(&pod, str_from(cases[i].pod), &e), &e);
        got = pod_waiting(pod);
        if (cases[i].want)
            assert_string_equal(got, cases[i].want);
        else
            assert_null(got);
    }
}

int main(void)
{
    return TEST_RUN(T(test_reasons));
}
