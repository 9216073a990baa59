/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model deployment card: what a frontend must know to serve a model (wire.md §3, 15.6).
 *
 * Immutable and reference counted: snapshots of several threads share it. Strings are owned,
 * NUL-terminated; NULL where the key is absent. Bounded by RECORD_BYTES_MAX.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/mem.h"
#include "lib/base/ref.h"
#include "lib/base/str.h"
#include "router/wire/optional.h"

struct err;

enum model_flag {
    MODEL_CHAT = 1,
    MODEL_COMPLETIONS = 2,
    MODEL_EMBEDDING = 4,
    MODEL_TENSOR = 8,
    MODEL_PREFILL = 16,
};
enum model_input { MODEL_INPUT_TEXT, MODEL_INPUT_TOKENS, MODEL_INPUT_TENSOR };

/* One FILE; path NULL = absent. */
struct card_file {
    char *path;     /* local path or URL */
    char *checksum; /* "blake3:<64 hex>" */
    uint64_t size;  /* of 1.x; 0 = not said */
};

/*
 * What SGLang's workers say of the HiCache that they keep in a Mooncake store: runtime_data
 * sglang_hicache_mooncake of 1.x. Absent where a member that 1.6.1 asks for is.
 */
struct card_hicache {
    bool present, is_mooncake;
    uint32_t page_size, tp_size, pp_size, tp_lcm_size; /* 0 = not given */
    bool is_mla, is_eagle, splits_heads;
    char *prefix;          /* of all names in the store; NULL = none */
    char *events_endpoint; /* of the master's publisher; NULL = not given */
};

struct model_card {
    struct ref ref;
    char *display_name; /* the model's name towards clients */
    char *slug;
    char *source_path;
    struct card_file model_info;       /* config.json */
    struct card_file tokenizer;        /* tokenizer.json, tiktoken file, SentencePiece model */
    struct card_file prompt_formatter; /* tokenizer_config.json */
    struct card_file chat_template;    /* chat_template.jinja */
    bool chat_template_is_custom;
    struct card_file gen_config; /* generation_config.json */
    uint32_t context_length;     /* effective: context_length, else the 1.x keys; 0 = unknown */
    uint32_t kv_cache_block_size;
    uint32_t migration_limit;
    unsigned flags; /* enum model_flag, ored */
    enum model_input input;
    bool is_prefill; /* the Prefill flag or worker_type "prefill" */
    bool is_decode;  /* worker_type "decode": prompts are to come from prefill workers */
    /* runtime_config; 0 = not given */
    uint64_t total_kv_blocks, max_num_seqs, max_num_batched_tokens;
    uint64_t token_budget;      /* of a prompt and what is wanted for it; more is to be refused */
    uint32_t dp_start, dp_size; /* ranks dp_start … dp_start + dp_size - 1; size at least 1 */
    bool has_local_indexer;     /* key present */
    bool local_indexer;
    bool eagle;   /* blocks are hashed with the token that follows (router.md §1.6) */
    bool is_of_1; /* it has keys of 1.x (wire.md §15.1) */
    char *tool_call_parser, *reasoning_parser;
    /* Calls of tools are guided in tool_call_parser's form: structural_tag, else structural_tag_mode … */
    bool tags_on, tags_always, tags_strict;
    struct opt_bool thinks; /* unless a chat says itself: runtime_data.default_thinking_mode */
    char **taints;          /* what requests may require or prefer of a worker */
    size_t n_taints;
    char
        *lora_name; /* of an adapter's card, whose display_name it is, too; NULL = a base model's */
    struct card_hicache hicache;
    char *bootstrap_host; /* disaggregated_endpoint */
    uint16_t bootstrap_port;
    char mdc_sum[65]; /* as the 0.9.0 formula gives it */
};

/* The @i'th file of CARD_FILES; its path may be NULL. */
enum { CARD_FILES = 5 };
const struct card_file *model_card_file(const struct model_card *c, size_t i);

/* -EINVAL names the key; unknown keys are ignored. */
MUST_CHECK int model_card_parse(struct model_card **ret, struct str json, struct err *e);
struct model_card *model_card_ref(const struct model_card *c) __attribute__((returns_nonnull));
struct model_card *model_card_unref(struct model_card *c); /* NULL in, NULL out */
DEFINE_CLEANUP(struct model_card *, model_card_unref)
/* JSON that 0.9.0 and 1.x readers accept. */
void model_card_put(struct buf *out, const struct model_card *c);

/*
 * Whether workers of both cards can serve one model: their prompts are the same tokens, cut into
 * the same blocks. Other than mdc_sum this holds for cards of 0.9 and 1.x of one model, too.
 */
bool model_card_fits(const struct model_card *a, const struct model_card *b);

/* For a worker of ours: a card of the model in a local directory. */
struct model_card_spec {
    const char *dir;  /* must hold config.json; the others are listed when they exist */
    const char *url;  /* where the worker serves them itself: <url>/<file>; NULL = by their paths */
    const char *name; /* display name; NULL = dir as given */
    uint32_t kv_cache_block_size;
    uint32_t context_length; /* 0 = from the model's files */
    uint32_t migration_limit;
    unsigned flags; /* 0 = MODEL_CHAT | MODEL_COMPLETIONS */
    bool is_decode;
    uint64_t total_kv_blocks, max_num_seqs, max_num_batched_tokens;
    uint32_t dp_size; /* 0 = 1 */
    bool local_indexer;
    const char *tool_call_parser, *reasoning_parser; /* NULL = none */
    const char *bootstrap_host;                      /* NULL = none */
    uint16_t bootstrap_port;
};
/* Reads and hashes files: blocks; for start-up or loop_work(). */
MUST_CHECK int model_card_build(struct model_card **ret, const struct model_card_spec *spec,
                                struct err *e);

/* Local paths of a card's files; NULL where the card has none. */
struct model_files {
    char *config, *tokenizer, *tokenizer_config, *chat_template, *generation_config;
    unsigned n_fetched;    /* had to be downloaded, or had been before */
    unsigned n_differ;     /* are not those of the worker, by checksum */
    struct hub_hold *hold; /* keeps what came from a hub where it is; NULL = not needed */
    bool has_room;         /* something came from a hub now, and then this is how much there is: */
    unsigned n_evicted;    /* models that went for it */
    uint64_t hub_bytes;
};
void model_files_done(struct model_files *f);
DEFINE_CLEANUP_EMBEDDED(struct model_files, model_files_done)

/* A FILE that is no file yet: nobody but the caller can read what its path names. */
struct model_bytes {
    const char *path; /* as the card has it */
    struct str bytes;
};

struct model_places;
/*
 * Looks for each file, in this order: the card's own path; <model root>/<name or slug>/<file>; the
 * folder that the card's source names; the hub's cache; what the worker serves over HTTP; the hub.
 * A file with another checksum than the card's is passed over while there is hope for the right
 * one, and then used with a warning, as 0.9.0 uses what it finds. @given (may be NULL) is what the
 * caller has read. Blocks, perhaps for long: model_download.h. Errors say in words which file is
 * missing and where it was looked for.
 */
MUST_CHECK int model_files_resolve(const struct model_card *c, const struct model_places *places,
                                   const struct model_bytes *given, size_t n_given,
                                   struct model_files *ret, struct err *e);
