/* SPDX-License-Identifier: Apache-2.0 */
#include "router/discovery/card.h"

#include <errno.h>
#include <string.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "router/discovery/card_inner.h"
#include "router/discovery/card_tags.h"
#include "router/discovery/records.h"
#include "router/wire/fields.h"

/* --- life ------------------------------------------------------------------------------------- */

static void file_done(struct card_file *f)
{
    free(f->path);
    free(f->checksum);
}

struct model_card *model_card_ref(const struct model_card *c)
{
    /* The count is the one thing that changes in a card. */
    struct model_card *counted = (struct model_card *)(uintptr_t)c;

    ref_take(&counted->ref);
    return counted;
}

struct model_card *model_card_unref(struct model_card *c)
{
    if (!c || !ref_drop(&c->ref))
        return NULL;
    free(c->display_name);
    free(c->slug);
    free(c->source_path);
    file_done(&c->model_info);
    file_done(&c->tokenizer);
    file_done(&c->prompt_formatter);
    file_done(&c->chat_template);
    file_done(&c->gen_config);
    free(c->tool_call_parser);
    for (size_t i = 0; i < c->n_taints; i++)
        free(c->taints[i]);
    free(c->taints);
    free(c->reasoning_parser);
    free(c->bootstrap_host);
    free(c->lora_name);
    free(c->hicache.prefix);
    free(c->hicache.events_endpoint);
    free(c);
    return NULL;
}

struct model_card *model_card_new(void)
{
    struct model_card *c = xcalloc(1, sizeof(*c));

    ref_init(&c->ref);
    c->dp_size = 1;
    return c;
}

/* --- checksum --------------------------------------------------------------------------------- */

/* wire.md §3.4 */
void model_card_sum(struct model_card *c, struct str prompt_context, uint32_t context_length)
{
    const struct card_file *const files[] = {&c->model_info, &c->tokenizer, &c->prompt_formatter,
                                             &c->chat_template, &c->gen_config};
    AUTO(buf_done) struct buf text = BUF_NULL;

    buf_put_cstr(&text, c->display_name);
    if (c->source_path)
        buf_put_cstr(&text, c->source_path);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (files[i]->checksum)
            buf_put_cstr(&text, files[i]->checksum);
    buf_put_str(&text, prompt_context);
    buf_put_u32be(&text, context_length);
    buf_put_u32be(&text, c->kv_cache_block_size);
    digest_blake3_hex(buf_str(&text), c->mdc_sum);
}

const struct card_file *model_card_file(const struct model_card *c, size_t i)
{
    const struct card_file *const all[CARD_FILES] = {
        &c->model_info, &c->tokenizer, &c->prompt_formatter, &c->chat_template, &c->gen_config};

    return all[i];
}

static bool same_file(const struct card_file *a, const struct card_file *b)
{
    return str_eq(str_from(a->checksum), str_from(b->checksum));
}

bool model_card_fits(const struct model_card *a, const struct model_card *b)
{
    return a->kv_cache_block_size == b->kv_cache_block_size && a->eagle == b->eagle &&
           same_file(&a->model_info, &b->model_info) && same_file(&a->tokenizer, &b->tokenizer) &&
           same_file(&a->prompt_formatter, &b->prompt_formatter) &&
           same_file(&a->chat_template, &b->chat_template) &&
           same_file(&a->gen_config, &b->gen_config) &&
           str_eq(str_from(a->lora_name), str_from(b->lora_name));
}

/* --- reading ---------------------------------------------------------------------------------- */

enum {
    HAS_NAME = 1,
    HAS_SLUG = 2,
    HAS_BLOCK_SIZE = 4,
    HAS_MIGRATION = 8,
    HAS_TYPE = 16,
    HAS_INPUT = 32,
    HAS_ALL = 63,
};

enum { TAINTS_MAX = 64 };

struct reading {
    struct json_pull p;
    struct buf scratch;
    struct model_card *c;
    struct buf prompt_context; /* as the reference's debug print shows it */
    struct opt_u64 context_length, architectural, runtime_context;
    unsigned seen;
};

/* A string or null; replaces what an earlier key of the same name gave. */
static void text_read(struct reading *rd, char **ret)
{
    struct str s = STR_NULL;

    buf_clear(&rd->scratch);
    text_pull(&rd->p, &rd->scratch, &s);
    if (!json_pull_ok(&rd->p) || !s.ptr)
        return;
    if (memchr(s.ptr, '\0', s.len)) {
        json_pull_fail(&rd->p, "a text holds a NUL");
        return;
    }
    free(*ret);
    *ret = str_dup(s);
}

static void u32_read(struct reading *rd, uint32_t *ret)
{
    uint64_t v;

    if (json_pull_null(&rd->p) || !json_pull_u64(&rd->p, &v))
        return;
    if (v > UINT32_MAX)
        json_pull_fail(&rd->p, "integer out of range");
    else
        *ret = (uint32_t)v;
}

static void size_read(struct reading *rd, uint64_t *ret)
{
    if (!json_pull_null(&rd->p))
        (void)json_pull_u64(&rd->p, ret);
}

/* {"name":n,…} or null */
static void lora_read(struct reading *rd)
{
    struct str key;

    if (json_pull_null(&rd->p) || !json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key))
        if (str_is(key, "name"))
            text_read(rd, &rd->c->lora_name);
        else
            skip_pull(&rd->p);
}

/* {"path":p,"checksum":c,"size":n} */
static void file_read(struct reading *rd, struct card_file *f)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "path"))
            text_read(rd, &f->path);
        else if (str_is(key, "checksum"))
            text_read(rd, &f->checksum);
        else if (str_is(key, "size"))
            size_read(rd, &f->size);
        else
            skip_pull(&rd->p);
    }
}

/* {"hf_config_json":FILE} and its kin: the variant's name does not matter, the file does. */
static void tagged_file_read(struct reading *rd, struct card_file *f)
{
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key))
        if (json_pull_peek(&rd->p) == JSON_KIND_OBJECT)
            file_read(rd, f);
        else
            skip_pull(&rd->p);
}

/* {"hf_chat_template":{"is_custom":b,"file":FILE}}; 1.x has more variants of the same shape. */
static void template_read(struct reading *rd)
{
    struct str key, inner;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (!json_pull_object(&rd->p))
            continue;
        while (json_pull_key(&rd->p, &inner)) {
            if (str_is(inner, "file"))
                file_read(rd, &rd->c->chat_template);
            else if (str_is(inner, "is_custom")) {
                if (!json_pull_bool(&rd->p, &rd->c->chat_template_is_custom))
                    return;
            } else
                skip_pull(&rd->p);
        }
    }
}

static const struct {
    const char *name;
    unsigned flag;
} flag_names[] = {
    {"Chat", MODEL_CHAT},           {"Completions", MODEL_COMPLETIONS},
    {"Embedding", MODEL_EMBEDDING}, {"TensorBased", MODEL_TENSOR},
    {"Prefill", MODEL_PREFILL},
};

/* "Chat | Completions", in any order and spacing; unknown names are of later releases. */
static void type_read(struct reading *rd)
{
    struct str raw, part;
    bool more = true;

    if (!json_pull_raw_string(&rd->p, &raw))
        return;
    rd->seen |= HAS_TYPE;
    while (more) {
        more = str_cut(&raw, '|', &part);
        part = str_trim(part);
        for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
            if (str_is(part, flag_names[i].name))
                rd->c->flags |= flag_names[i].flag;
    }
}

static void input_read(struct reading *rd)
{
    struct str raw;

    if (!json_pull_raw_string(&rd->p, &raw))
        return;
    rd->seen |= HAS_INPUT;
    if (str_is(raw, "Text"))
        rd->c->input = MODEL_INPUT_TEXT;
    else if (str_is(raw, "Tokens"))
        rd->c->input = MODEL_INPUT_TOKENS;
    else if (str_is(raw, "Tensor"))
        rd->c->input = MODEL_INPUT_TENSOR;
    else
        json_pull_fail(&rd->p, "unknown model_input");
}

static void prompt_context_read(struct reading *rd)
{
    struct str raw;

    if (!json_pull_array(&rd->p))
        return;
    buf_clear(&rd->prompt_context);
    while (json_pull_element(&rd->p)) {
        if (!json_pull_raw_string(&rd->p, &raw))
            return;
        buf_put_cstr(&rd->prompt_context, rd->prompt_context.len ? ", " : "[");
        buf_put_str(&rd->prompt_context, str_is(raw, "oai_chat")           ? STR("OaiChat")
                                         : str_is(raw, "llama3_date_time") ? STR("Llama3DateTime")
                                                                           : raw);
    }
    buf_put_cstr(&rd->prompt_context, rd->prompt_context.len ? "]" : "[]");
}

static void bootstrap_read(struct reading *rd)
{
    uint32_t port = 0;
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "bootstrap_host"))
            text_read(rd, &rd->c->bootstrap_host);
        else if (str_is(key, "bootstrap_port"))
            u32_read(rd, &port);
        else
            skip_pull(&rd->p);
    }
    if (port > UINT16_MAX)
        json_pull_fail(&rd->p, "bootstrap_port out of range");
    rd->c->bootstrap_port = (uint16_t)port;
}

/* A list of names; what is no name, and what is beyond the bound, is left out. */
static void taints_read(struct reading *rd)
{
    struct model_card *c = rd->c;

    if (json_pull_null(&rd->p) || !json_pull_array(&rd->p))
        return;
    while (json_pull_element(&rd->p)) {
        char *name = NULL;

        text_read(rd, &name);
        if (!name || c->n_taints == TAINTS_MAX) {
            free(name);
            continue;
        }
        if (!c->taints)
            c->taints = xcalloc(TAINTS_MAX, sizeof(*c->taints));
        c->taints[c->n_taints++] = name;
    }
}

struct hicache_numbers {
    struct opt_u64 page, tp, pp, lcm;
    struct opt_bool mla, eagle, splits;
};

static const struct field hicache_fields[] = {
    {"page_size", FIELD_U32, offsetof(struct hicache_numbers, page)},
    {"tp_size", FIELD_U32, offsetof(struct hicache_numbers, tp)},
    {"pp_size", FIELD_U32, offsetof(struct hicache_numbers, pp)},
    {"tp_lcm_size", FIELD_U32, offsetof(struct hicache_numbers, lcm)},
    {"is_mla_model", FIELD_BOOL, offsetof(struct hicache_numbers, mla)},
    {"is_eagle", FIELD_BOOL, offsetof(struct hicache_numbers, eagle)},
    {"should_split_heads", FIELD_BOOL, offsetof(struct hicache_numbers, splits)},
};

static void hicache_member_read(struct reading *rd, struct str key, char **backend, char **tag,
                                struct hicache_numbers *n)
{
    struct card_hicache *h = &rd->c->hicache;

    if (str_is(key, "backend"))
        text_read(rd, backend);
    else if (str_is(key, "extra_backend_tag"))
        text_read(rd, tag);
    else if (str_is(key, "key_prefix"))
        text_read(rd, &h->prefix);
    else if (str_is(key, "kv_events_endpoint"))
        text_read(rd, &h->events_endpoint);
    else if (!fields_pull(&rd->p, key, hicache_fields, ARRAY_LEN(hicache_fields), n))
        skip_pull(&rd->p);
}

/* Read for itself: a worker whose cache cannot be understood answers all the same. */
static void hicache_read(struct model_card *c, struct str json)
{
    struct card_hicache *h = &c->hicache;
    AUTO(mem_free) char *backend = NULL, *tag = NULL;
    struct hicache_numbers n = {0};
    struct reading rd = {.c = c};
    struct str key;

    json_pull_init(&rd.p, json);
    if (json_pull_object(&rd.p))
        while (json_pull_key(&rd.p, &key))
            hicache_member_read(&rd, key, &backend, &tag, &n);
    buf_done(&rd.scratch);
    h->present = json_pull_ok(&rd.p) && backend && n.page.set && n.tp.set && n.pp.set &&
                 n.mla.set && n.eagle.set && n.splits.set;
    h->is_mooncake = backend && strcmp(backend, "mooncake") == 0;
    h->page_size = (uint32_t)n.page.v;
    h->tp_size = (uint32_t)n.tp.v;
    h->pp_size = (uint32_t)n.pp.v;
    h->tp_lcm_size = (uint32_t)n.lcm.v;
    h->is_mla = n.mla.v;
    h->is_eagle = n.eagle.v;
    h->splits_heads = n.splits.v;
    if (!h->prefix && tag && *tag) /* of releases that had no prefix yet */
        h->prefix = TAKE(tag);
}

/* {"combined_limit":n,"reject_total_overflow":b,…} of vLLM's workers of 1.6. */
static void budget_read(struct model_card *c, struct str json)
{
    uint64_t limit;

    if (str_is(json_pull_member(json, "reject_total_overflow"), "true") &&
        str_parse_u64(json_pull_member(json, "combined_limit"), &limit))
        c->token_budget = limit;
}

/* Any other value says nothing. */
static void thinking_read(struct model_card *c, struct str json)
{
    bool on = str_is(json, "\"enabled\"");

    c->thinks = (struct opt_bool){.set = on || str_is(json, "\"disabled\""), .v = on};
}

static void runtime_data_read(struct reading *rd)
{
    struct str key, json;

    if (json_pull_null(&rd->p) || !json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key) && json_pull_skip(&rd->p, &json))
        if (str_is(key, "sglang_hicache_mooncake"))
            hicache_read(rd->c, json);
        else if (str_is(key, "token_budget"))
            budget_read(rd->c, json);
        else if (str_is(key, "default_thinking_mode"))
            thinking_read(rd->c, json);
}

struct runtime_numbers {
    struct opt_u64 blocks, seqs, batched, dp_start, dp_size, context;
    struct opt_bool local_indexer, eagle;
};

static const struct field runtime_fields[] = {
    {"total_kv_blocks", FIELD_U64, offsetof(struct runtime_numbers, blocks)},
    {"max_num_seqs", FIELD_U64, offsetof(struct runtime_numbers, seqs)},
    {"max_num_batched_tokens", FIELD_U64, offsetof(struct runtime_numbers, batched)},
    {"data_parallel_start_rank", FIELD_U32, offsetof(struct runtime_numbers, dp_start)},
    {"data_parallel_size", FIELD_U32, offsetof(struct runtime_numbers, dp_size)},
    {"context_length", FIELD_U32, offsetof(struct runtime_numbers, context)},
    {"enable_local_indexer", FIELD_BOOL, offsetof(struct runtime_numbers, local_indexer)},
    {"enable_eagle", FIELD_BOOL, offsetof(struct runtime_numbers, eagle)},
};

static void runtime_read(struct reading *rd)
{
    struct runtime_numbers n = {0};
    struct card_tags tags = {0};
    struct model_card *c = rd->c;
    struct str key;

    if (!json_pull_object(&rd->p))
        return;
    while (json_pull_key(&rd->p, &key)) {
        if (str_is(key, "tool_call_parser"))
            text_read(rd, &c->tool_call_parser);
        else if (str_is(key, "reasoning_parser"))
            text_read(rd, &c->reasoning_parser);
        else if (str_is(key, "taints"))
            taints_read(rd);
        else if (str_is(key, "disaggregated_endpoint"))
            bootstrap_read(rd);
        else if (str_is(key, "runtime_data"))
            runtime_data_read(rd);
        else if (card_tags_find(&tags, key))
            (void)json_pull_skip(&rd->p, card_tags_find(&tags, key));
        else if (!fields_pull(&rd->p, key, runtime_fields, ARRAY_LEN(runtime_fields), &n))
            skip_pull(&rd->p);
    }
    card_tags_settle(&tags, c);
    c->total_kv_blocks = n.blocks.v;
    c->max_num_seqs = n.seqs.v;
    c->max_num_batched_tokens = n.batched.v;
    c->dp_start = (uint32_t)n.dp_start.v;
    c->dp_size = n.dp_size.v ? (uint32_t)n.dp_size.v : 1;
    c->has_local_indexer = n.local_indexer.set;
    c->eagle = n.eagle.v;
    c->is_of_1 |= n.dp_start.set;
    c->local_indexer = n.local_indexer.v;
    rd->runtime_context = n.context;
}

static void worker_type_read(struct reading *rd)
{
    AUTO(mem_free) char *word = NULL;

    text_read(rd, &word);
    rd->c->is_of_1 |= word != NULL;
    rd->c->is_prefill |= word && strcmp(word, "prefill") == 0;
    rd->c->is_decode = word && strcmp(word, "decode") == 0;
}

static const struct field top_fields[] = {
    {"context_length", FIELD_U32, offsetof(struct reading, context_length)},
    {"architectural_max_context_length", FIELD_U32, offsetof(struct reading, architectural)},
};

/* Whether @key names one of the files. */
static bool file_member_read(struct reading *rd, struct str key)
{
    struct model_card *c = rd->c;

    if (str_is(key, "model_info"))
        tagged_file_read(rd, &c->model_info);
    else if (str_is(key, "tokenizer"))
        tagged_file_read(rd, &c->tokenizer);
    else if (str_is(key, "prompt_formatter"))
        tagged_file_read(rd, &c->prompt_formatter);
    else if (str_is(key, "gen_config"))
        tagged_file_read(rd, &c->gen_config);
    else if (str_is(key, "chat_template_file"))
        template_read(rd);
    else
        return false;
    return true;
}

static void member_read(struct reading *rd, struct str key)
{
    struct model_card *c = rd->c;

    if (str_is(key, "display_name")) {
        text_read(rd, &c->display_name);
    } else if (str_is(key, "slug")) {
        text_read(rd, &c->slug);
    } else if (str_is(key, "source_path")) {
        text_read(rd, &c->source_path);
    } else if (str_is(key, "kv_cache_block_size")) {
        u32_read(rd, &c->kv_cache_block_size);
        rd->seen |= HAS_BLOCK_SIZE;
    } else if (str_is(key, "migration_limit")) {
        u32_read(rd, &c->migration_limit);
        rd->seen |= HAS_MIGRATION;
    } else if (str_is(key, "model_type")) {
        type_read(rd);
    } else if (str_is(key, "model_input")) {
        input_read(rd);
    } else if (str_is(key, "prompt_context")) {
        prompt_context_read(rd);
    } else if (str_is(key, "runtime_config")) {
        runtime_read(rd);
    } else if (str_is(key, "lora")) {
        lora_read(rd);
    } else if (str_is(key, "worker_type")) {
        worker_type_read(rd);
    } else if (!file_member_read(rd, key) &&
               !fields_pull(&rd->p, key, top_fields, ARRAY_LEN(top_fields), rd)) {
        skip_pull(&rd->p);
    }
}

static bool slug_is_valid(const char *slug)
{
    for (; *slug; slug++)
        if (!(*slug >= 'a' && *slug <= 'z') && !(*slug >= '0' && *slug <= '9') && *slug != '-' &&
            *slug != '_')
            return false;
    return true;
}

static int card_check(struct reading *rd, struct err *e)
{
    static const char *const names[] = {"display_name",    "slug",       "kv_cache_block_size",
                                        "migration_limit", "model_type", "model_input"};
    const struct model_card *c = rd->c;

    rd->seen |= c->display_name && *c->display_name ? HAS_NAME : 0;
    rd->seen |= c->slug ? HAS_SLUG : 0;
    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        if (!(rd->seen & 1u << i))
            return err_set(e, -EINVAL, "model card: missing field `%s`", names[i]);
    if (!slug_is_valid(c->slug))
        return err_set(e, -EINVAL, "model card: slug '%.64s' is not one", c->slug);
    if (!rd->context_length.set && !rd->architectural.set && !rd->runtime_context.set)
        return err_set(e, -EINVAL, "model card: missing field `context_length`");
    return 0;
}

static int card_read(struct reading *rd, struct err *e)
{
    struct model_card *c = rd->c;
    struct str key;
    int r;

    if (json_pull_object(&rd->p))
        while (json_pull_key(&rd->p, &key))
            member_read(rd, key);
    r = json_pull_end(&rd->p, e);
    if (r < 0)
        return err_wrap(e, r, "model card");
    r = card_check(rd, e);
    if (r < 0)
        return r;
    c->context_length = (uint32_t)(rd->runtime_context.v  ? rd->runtime_context.v
                                   : rd->context_length.v ? rd->context_length.v
                                                          : rd->architectural.v);
    c->is_of_1 |= rd->architectural.set || c->model_info.size > 0;
    c->is_prefill |= (c->flags & MODEL_PREFILL) != 0;
    model_card_sum(c, buf_str(&rd->prompt_context), (uint32_t)rd->context_length.v);
    return 0;
}

int model_card_parse(struct model_card **ret, struct str json, struct err *e)
{
    AUTO(model_card_unref) struct model_card *c = model_card_new();
    struct reading rd = {.c = c};
    int r;

    if (json.len > RECORD_BYTES_MAX)
        return err_set(e, -EINVAL, "model card of %zu bytes", json.len);
    json_pull_init(&rd.p, json);
    r = card_read(&rd, e);
    buf_done(&rd.scratch);
    buf_done(&rd.prompt_context);
    if (r < 0)
        return r;
    *ret = TAKE(c);
    return 0;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* What 1.x verifies; 0.9.0 does not look at it. */
static void size_put(struct json_put *j, const struct card_file *f)
{
    if (!f->size)
        return;
    json_put_member_u64(j, "size", f->size);
}

static void file_put(struct json_put *j, const char *key, const char *tag,
                     const struct card_file *f, bool always)
{
    if (!f->path && !always)
        return;
    json_put_key(j, key);
    if (!f->path) {
        json_put_null(j);
        return;
    }
    json_put_object(j);
    json_put_key(j, tag);
    json_put_object(j);
    json_put_member_cstr(j, "path", f->path);
    json_put_member_cstr(j, "checksum", f->checksum);
    size_put(j, f);
    json_put_object_end(j);
    json_put_object_end(j);
}

static const char *tokenizer_tag(const struct card_file *f)
{
    return !f->path || str_ends(str_from(f->path), STR(".json")) ? "hf_tokenizer_json"
                                                                 : "tik_token_model";
}

static void template_put(struct json_put *j, const struct model_card *c)
{
    if (!c->chat_template.path)
        return;
    json_put_key(j, "chat_template_file");
    json_put_object(j);
    json_put_key(j, "hf_chat_template");
    json_put_object(j);
    json_put_member_bool(j, "is_custom", c->chat_template_is_custom);
    json_put_key(j, "file");
    json_put_object(j);
    json_put_member_cstr(j, "path", c->chat_template.path);
    json_put_member_cstr(j, "checksum", c->chat_template.checksum);
    size_put(j, &c->chat_template);
    json_put_object_end(j);
    json_put_object_end(j);
    json_put_object_end(j);
}

static void u64_or_null(struct json_put *j, const char *key, uint64_t v)
{
    json_put_key(j, key);
    if (v)
        json_put_u64(j, v);
    else
        json_put_null(j);
}

static void number_put(struct json_put *j, const char *key, uint64_t v)
{
    json_put_key(j, key);
    json_put_u64(j, v);
}

static void text_put(struct json_put *j, const char *key, const char *v)
{
    json_put_key(j, key);
    json_put_cstr(j, v);
}

static void runtime_put(struct json_put *j, const struct model_card *c)
{
    json_put_key(j, "runtime_config");
    json_put_object(j);
    u64_or_null(j, "total_kv_blocks", c->total_kv_blocks);
    u64_or_null(j, "max_num_seqs", c->max_num_seqs);
    u64_or_null(j, "max_num_batched_tokens", c->max_num_batched_tokens);
    text_put(j, "tool_call_parser", c->tool_call_parser);
    text_put(j, "reasoning_parser", c->reasoning_parser);
    if (c->dp_start)
        number_put(j, "data_parallel_start_rank", c->dp_start);
    number_put(j, "data_parallel_size", c->dp_size);
    json_put_member_bool(j, "enable_local_indexer", c->local_indexer);
    if (c->n_taints) {
        json_put_key(j, "taints");
        json_put_array(j);
        for (size_t i = 0; i < c->n_taints; i++)
            json_put_cstr(j, c->taints[i]);
        json_put_array_end(j);
    }
    if (c->bootstrap_host) {
        json_put_key(j, "disaggregated_endpoint");
        json_put_object(j);
        text_put(j, "bootstrap_host", c->bootstrap_host);
        number_put(j, "bootstrap_port", c->bootstrap_port);
        json_put_object_end(j);
    }
    json_put_object_end(j);
}

static void type_put(struct json_put *j, unsigned flags)
{
    AUTO(buf_done) struct buf text = BUF_NULL;

    for (size_t i = 0; i < ARRAY_LEN(flag_names); i++)
        if (flags & flag_names[i].flag)
            buf_printf(&text, "%s%s", text.len ? " | " : "", flag_names[i].name);
    json_put_member_str(j, "model_type", buf_str(&text));
}

/* For 1.x: which workers it takes to serve the model (wire.md §15.6). */
static void role_put(struct json_put *j, const struct model_card *c)
{
    const char *needed = c->is_prefill ? "decode" : c->is_decode ? "prefill" : NULL;

    text_put(j, "worker_type", c->is_prefill ? "prefill" : c->is_decode ? "decode" : "aggregated");
    json_put_key(j, "needs");
    json_put_array(j);
    if (needed) {
        json_put_array(j);
        json_put_cstr(j, needed);
        json_put_array_end(j);
    }
    json_put_array_end(j);
}

static void lora_put(struct json_put *j, const struct model_card *c)
{
    if (!c->lora_name)
        return;
    json_put_key(j, "lora");
    json_put_object(j);
    text_put(j, "name", c->lora_name);
    json_put_object_end(j);
}

void model_card_put(struct buf *out, const struct model_card *c)
{
    static const char *const inputs[] = {[MODEL_INPUT_TEXT] = "Text",
                                         [MODEL_INPUT_TOKENS] = "Tokens",
                                         [MODEL_INPUT_TENSOR] = "Tensor"};
    struct json_put j = json_put_on(out);

    json_put_object(&j);
    text_put(&j, "display_name", c->display_name);
    text_put(&j, "slug", c->slug);
    if (c->source_path)
        text_put(&j, "source_path", c->source_path);
    file_put(&j, "model_info", "hf_config_json", &c->model_info, true);
    file_put(&j, "tokenizer", tokenizer_tag(&c->tokenizer), &c->tokenizer, true);
    file_put(&j, "prompt_formatter", "hf_tokenizer_config_json", &c->prompt_formatter, false);
    template_put(&j, c);
    file_put(&j, "gen_config", "hf_generation_config_json", &c->gen_config, false);
    number_put(&j, "context_length", c->context_length);
    number_put(&j, "kv_cache_block_size", c->kv_cache_block_size);
    number_put(&j, "migration_limit", c->migration_limit);
    type_put(&j, c->flags);
    text_put(&j, "model_input", inputs[c->input]);
    role_put(&j, c);
    lora_put(&j, c);
    runtime_put(&j, c);
    text_put(&j, "media_decoder", NULL);
    text_put(&j, "media_fetcher", NULL);
    json_put_object_end(&j);
}
