/* SPDX-License-Identifier: Apache-2.0 */
#include "router/token/tiktoken.h"

#include <errno.h>

#include "lib/base/digest.h"
#include "lib/base/err.h"
#include "lib/base/json_tree.h"
#include "router/token/tokenizer_model.h"

/* --- families --------------------------------------------------------------------------------- */

enum { RESERVED = 256 };

struct family {
    const char *model_types; /* with a blank before and behind each */
    const char *pattern;
    bool nfc;
    int (*special)(struct tokenizer *t, uint32_t base,
                   struct err *e); /* where no file names them */
    bool fills;                    /* names what is left of the reserved ids */
};

static int kimi_special(struct tokenizer *t, uint32_t base, struct err *e)
{
    (void)t;
    (void)base;
    (void)e;
    return 0; /* all of them are reserved */
}

/* "<|PREFIX_NUMBER|>" */
static int add_named(struct tokenizer *t, uint32_t id, const char *prefix, unsigned number,
                     struct err *e)
{
    AUTO(mem_free) char *name = xasprintf("<|%s_%u|>", prefix, number);

    return tokenizer_add_special(t, id, str_from(name), e);
}

static int qwen_special(struct tokenizer *t, uint32_t base, struct err *e)
{
    static const char *const names[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < ARRAY_LEN(names); i++)
        r = tokenizer_add_special(t, base + i, str_from(names[i]), e);
    for (uint32_t i = 0; r == 0 && i < 205; i++)
        r = add_named(t, base + ARRAY_LEN(names) + i, "extra", i, e);
    return r;
}

static int llama_special(struct tokenizer *t, uint32_t base, struct err *e)
{
    static const char *const names[] = {"<|begin_of_text|>",
                                        "<|end_of_text|>",
                                        "<|reserved_special_token_0|>",
                                        "<|reserved_special_token_1|>",
                                        "<|reserved_special_token_2|>",
                                        "<|reserved_special_token_3|>",
                                        "<|start_header_id|>",
                                        "<|end_header_id|>",
                                        "<|reserved_special_token_4|>",
                                        "<|eot_id|>"};
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < RESERVED; i++)
        r = i < ARRAY_LEN(names) ? tokenizer_add_special(t, base + i, str_from(names[i]), e)
                                 : add_named(t, base + i, "reserved_special_token", i - 5, e);
    return r;
}

static const struct family FAMILIES[] = {
    {" kimi kimi_k2 kimi_k25 kimi_k3 kimi_linear deepseek_v3 ", SCAN_PATTERN_KIMI, false,
     kimi_special, true},
    {" qwen ", SCAN_PATTERN_WORDS("\\p{N}"), true, qwen_special, false},
    {" llama ", SCAN_PATTERN_WORDS("\\p{N}{1,3}"), false, llama_special, false},
};

static int find_family(const struct json *config, const struct family **ret, struct err *e)
{
    const char *type = json_get_cstr(config, "model_type");
    AUTO(mem_free) char *word = xasprintf(" %s ", type ? type : "?");

    for (size_t i = 0; type && i < ARRAY_LEN(FAMILIES); i++)
        if (strstr(FAMILIES[i].model_types, word)) {
            *ret = &FAMILIES[i];
            return 0;
        }
    return err_set(e, -ENOTSUP,
                   "model_type \"%.64s\" of config.json: how it cuts words is not known",
                   type ? type : "");
}

/* --- the file --------------------------------------------------------------------------------- */

static struct str trimmed(struct str s)
{
    while (s.len > 0 && strchr(" \t\r", s.ptr[s.len - 1]))
        s.len--;
    while (s.len > 0 && strchr(" \t\r", s.ptr[0]))
        s = str_skip(s, 1);
    return s;
}

/* A token's bytes, appended, and its rank. */
static bool parse_line(struct str line, struct buf *bytes, uint64_t *ret_rank)
{
    struct str token;

    return str_cut(&line, ' ', &token) && token.len > 0 && base64_decode(bytes, token) &&
           str_parse_u64(trimmed(line), ret_rank);
}

bool tiktoken_is(struct str file)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;
    struct str line;
    uint64_t rank;

    (void)str_cut(&file, '\n', &line);
    return line.len <= 2 * TIKTOKEN_MAX_TOKEN && parse_line(trimmed(line), &bytes, &rank);
}

/* Spelt in the byte alphabet, as tokenizer.json does it. */
static int add_token(struct tokenizer *t, struct str bytes, uint64_t rank, struct err *e)
{
    AUTO(buf_done) struct buf letters = BUF_NULL;

    if (rank >= TOKENIZER_MAX_VOCAB || bytes.len == 0 || bytes.len > TIKTOKEN_MAX_TOKEN)
        return err_set(e, -E2BIG, "rank %llu, or its token, is too large",
                       (unsigned long long)rank);
    decode_put_letters(bytes, &letters);
    if (vocab_find(&t->bytes, bytes) != VOCAB_NONE ||
        !vocab_add(&t->bytes, (uint32_t)rank, bytes) ||
        !vocab_add(&t->model, (uint32_t)rank, buf_str(&letters)))
        return err_set(e, -EINVAL, "rank %llu or its token is given twice",
                       (unsigned long long)rank);
    return 0;
}

static int read_ranks(struct tokenizer *t, struct str file, struct err *e)
{
    AUTO(buf_done) struct buf bytes = BUF_NULL;
    struct str line;
    uint64_t rank;
    int r = 0, number = 0;

    while (r == 0 && file.len > 0) {
        number++;
        (void)str_cut(&file, '\n', &line);
        line = trimmed(line);
        if (line.len == 0)
            continue;
        buf_clear(&bytes);
        r = parse_line(line, &bytes, &rank) ? add_token(t, buf_str(&bytes), rank, e)
                                            : err_set(e, -EINVAL, "not a token and its rank");
    }
    for (int i = 0; r == 0 && i < 256; i++)
        if (vocab_find(&t->bytes, str_slice(&(char){(char)i}, 1)) == VOCAB_NONE)
            return err_set(e, -ENOTSUP, "there is no token for byte %d", i);
    return r < 0 ? err_wrap(e, r, "line %d", number) : 0;
}

/* Whatever two tokens make up a third merges into it, those of low rank first. */
static int add_merges(struct tokenizer *t, struct err *e)
{
    size_t work = 0;

    for (uint32_t id = 0; id < t->bytes.limit; id++) {
        struct str text = vocab_text(&t->bytes, id);

        work += text.len * text.len;
        if (work > TIKTOKEN_MAX_WORK)
            return err_set(e, -E2BIG, "its tokens are too long");
        for (size_t cut = 1; cut < text.len; cut++) {
            uint32_t left = vocab_find(&t->bytes, str_slice(text.ptr, cut)), right = VOCAB_NONE;

            if (left != VOCAB_NONE)
                right = vocab_find(&t->bytes, str_skip(text, cut));
            if (right != VOCAB_NONE)
                bpe_add_merge(&t->bpe, left, right, id, id);
        }
    }
    return 0;
}

/* --- special tokens --------------------------------------------------------------------------- */

static int add_listed(struct tokenizer *t, const struct json *listed, struct err *e)
{
    int r = 0;

    JSON_FOREACH (token, listed) {
        struct str content = str_from(json_get_cstr(token, "content"));
        uint64_t id;

        if (!str_parse_u64(str_from(json_key(token)), &id) || id >= TOKENIZER_MAX_VOCAB)
            return err_set(e, -EINVAL, "added_tokens_decoder: \"%.32s\" is no id", json_key(token));
        if (content.len > 0)
            r = tokenizer_add_special(t, (uint32_t)id, content, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_special(struct tokenizer *t, const struct family *f,
                       const struct json *tokenizer_config, struct err *e)
{
    const struct json *listed = json_get(tokenizer_config, "added_tokens_decoder");
    uint32_t base = t->bytes.limit;
    int r = json_is_object(listed) ? add_listed(t, listed, e) : f->special(t, base, e);

    for (uint32_t id = base; r == 0 && f->fills && id < base + RESERVED; id++)
        if (!vocab_text(&t->added, id).ptr)
            r = add_named(t, id, "reserved_token", id, e);
    return r;
}

/* --- all together ----------------------------------------------------------------------------- */

static int set_stages(struct tokenizer *t, const struct family *f, struct err *e)
{
    AUTO(json_free) struct json *cut = json_new_object();
    AUTO(json_free) struct json *form = json_new_object();
    AUTO(json_free) struct json *decoder = json_new_object();
    int r;

    json_set_cstr(cut, "type", "Split");
    json_set_cstr(cut, "behavior", "Isolated");
    json_set_cstr(json_need_object(cut, "pattern"), "Regex", f->pattern);
    json_set_cstr(form, "type", "NFC");
    json_set_cstr(decoder, "type", "ByteLevel");
    r = split_load(&t->split, cut, e);
    t->split.byte_level = true;
    if (r == 0 && f->nfc)
        r = normalize_load(&t->normalize, form, e);
    return r < 0 ? r : decode_load(&t->decode, decoder, e);
}

int tiktoken_fill(struct tokenizer *t, struct str file, const struct json *config,
                  const struct json *tokenizer_config, struct err *e)
{
    const struct family *f = NULL;
    int r = find_family(config, &f, e);

    if (r == 0)
        r = set_stages(t, f, e);
    if (r == 0)
        r = read_ranks(t, file, e);
    if (r < 0)
        return r;
    t->kind = TOKENIZER_BPE;
    t->bpe = (struct bpe){
        .words = &t->bytes, .byte_level = true, .ignore_merges = true, .unk = VOCAB_NONE};
    bpe_prepare(&t->bpe);
    r = add_merges(t, e);
    return r < 0 ? r : add_special(t, f, tokenizer_config, e);
}
