/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings and selectors of a policy file (--router-policy-config), in the schema of the
 * reference 1.6; its policy classes are read by admission.h.
 *
 *     router:                    # wins over flags, variables and --load-aware, as there
 *       use_kv_events: false
 *       router_ttl_secs: 60      # … POLICY_SETTINGS in the source has all of them
 *     worker_selection: …        # router/sched/worker_selection.h
 *     request_classifier: {type: thunderagent, parameters: …}  # router/sched/programs.h
 */
#pragma once

#include "lib/base/mem.h"
#include "lib/base/str.h"

struct err;
struct frontend_conf;

/* Changes @c as --load-aware says, then as its file does, if it names one, and as its options for prefill
 * and decode do.
 * -EINVAL with the place and what is wrong there, or why it cannot be read. */
MUST_CHECK int policy_file_apply(struct frontend_conf *c, struct err *e);
/* The same for what is no frontend: a request_classifier is -EINVAL, as to the services of 1.6.1. */
MUST_CHECK int policy_file_apply_to_service(struct frontend_conf *c, struct err *e);
/* As the first, of a file's text. */
MUST_CHECK int policy_file_apply_text(struct frontend_conf *c, struct str yaml, struct err *e);
